package view

import (
	"fmt"
	"math"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

const settingsTitle = "Optimized Settings"

// settings are what is read of a plan first: a step, the Trainer's arguments, what they take, and
// what settings by hand would take.
func (r planRecord) settings() pairs {
	c := r.Config
	rows := pairs{
		{c.RowKind.Named() + " a step", r.step()},
		{"Micro-batches", microBatches(c)},
		{"Precision", precision(c)},
		{"Gradient checkpointing", checkpointing(c)},
	}
	if c.LoRARank > 0 {
		rows = append(rows, [2]string{"LoRA", fmt.Sprintf("adapters of rank %d", c.LoRARank)})
	}
	rows = append(rows, [2]string{"Memory", r.peak()}, [2]string{"Time", r.time()})
	if t := c.Times; t != nil && t.CostUSD != nil {
		rows = append(rows, [2]string{"Cost", ranged(*t.CostUSD, " US$")})
	}
	if c.ByHand != nil && c.ByHand.Speed != nil && len(r.Stale) == 0 {
		rows = append(rows, [2]string{"By hand", byHand(c)})
	}
	return rows
}

// step is "32 (per_device_train_batch_size=2, gradient_accumulation_steps=16)", with the unequal
// shares of GPUs.
func (r planRecord) step() string {
	c := r.Config
	clips := r.unequal()
	if clips == "" {
		clips = fmt.Sprintf("%d", c.PerDeviceTrainBatchSize*c.GradientAccumulationSteps*
			max(1, c.DeviceCount))
	}
	alike := map[string]string{"bucketed": " of similar length", "grouped": " of similar length",
		"packed": " of a few lengths"}[c.LengthHandling]
	devices := ""
	if c.DeviceCount > 1 {
		devices = fmt.Sprintf(", on %d GPUs", c.DeviceCount)
	}
	alone := c.WithoutGuard()
	return fmt.Sprintf("%s%s (per_device_train_batch_size=%d, gradient_accumulation_steps=%d%s)",
		clips, alike, alone.PerDeviceTrainBatchSize, alone.GradientAccumulationSteps, devices)
}

// microBatches are "from 1 of 20 s to 11 of 1.7 s, sized by manager.train", or "8 of up to 30 s".
func microBatches(c profile.Config) string {
	made := c.MicroBatches
	of := func(m profile.MicroBatch) string {
		length := rough(m.Seconds) + " s"
		if c.RowKind.AreTexts() {
			length = c.RowKind.Length(m.Seconds)
		}
		return fmt.Sprintf("%d of %s", m.Clips, length)
	}
	switch {
	case len(made) == 0:
		return fmt.Sprintf("%d of the longest %s", c.MicroBatchSize, c.RowKind.Nouns())
	case c.MicroBatching != "memory":
		return of(profile.MicroBatch{Clips: c.PerDeviceTrainBatchSize, Seconds: made[0].Seconds})
	case len(made) == 1:
		return of(made[0]) + ", sized by manager.train"
	}
	return fmt.Sprintf("from %s to %s, sized by manager.train", of(made[0]), of(made[1]))
}

// precision is "float16 (fp16=True)".
func precision(c profile.Config) string {
	arguments := ""
	if c.TF32 {
		arguments = ", tf32=True"
	}
	switch {
	case c.BF16:
		return "bfloat16 (bf16=True" + arguments + ")"
	case c.FP16:
		return "float16 (fp16=True" + arguments + ")"
	}
	return "float32 (fp16=False, bf16=False" + arguments + ")"
}

// checkpointing is "off (gradient_checkpointing=False)", or also what manager.train makes of it.
func checkpointing(c profile.Config) string {
	alone, argument := c.WithoutGuard().Checkpointing(), "False"
	if alone.On() {
		argument = "True"
	}
	text := fmt.Sprintf("%s (gradient_checkpointing=%s)", alone, argument)
	if alone != c.Checkpointing() {
		text += fmt.Sprintf("; manager.train: %s", c.Checkpointing())
	}
	return text
}

// peak is "12.0 of 15.0 GiB (80 %) on Tesla T4".
func (r planRecord) peak() string {
	m, where := r.Memory, " on "+name(r.Config.GPUName)
	switch {
	case r.Config.GPUName == "":
		where = " of RAM"
	case r.Config.DeviceCount > 1:
		where += ", the fullest GPU"
	}
	peak := inGiB(m.Peak)
	if m.Total != nil {
		peak = fmt.Sprintf("%s (%.0f %%)", part(m.Peak, *m.Total), 100*m.Peak/max(1, *m.Total))
	}
	return peak + where + r.before()
}

// before marks what is predicted of a plan that was changed since.
func (r planRecord) before() string {
	if len(r.Stale) > 0 {
		return ", before your changes"
	}
	return ""
}

// time is "an epoch 6.4 min (4.5–8), 3 epochs 22 min (15–31)".
func (r planRecord) time() string {
	c := r.Config
	switch {
	case c.Times != nil:
		return fmt.Sprintf("an epoch %s, %s %s%s", hours(c.Times.EpochHours),
			epochs(c.NumTrainEpochs), hours(c.Times.RunHours), r.before())
	case c.GPUName == "":
		return "not predicted for a CPU"
	}
	return "not predicted for this plan"
}

// byHand is "2 × 16, fp16, without checkpointing, random order: 1.33× as long, 8.5 min an epoch".
func byHand(c profile.Config) string {
	hand, long := *c.ByHand, fmt.Sprintf("%.3g× as long", *c.ByHand.Speed)
	if math.Abs(*hand.Speed-1) < 0.005 {
		long = "as long"
	}
	words := hand.What
	switch {
	case hand.Name == "published":
		words += " (published rule)"
	case c.MicroBatching == "fixed" && c.LengthHandling == "random":
		return "the same settings, if found: one size in random order"
	case long == "as long" && c.Times != nil && c.Times.Bound == "loader":
		return words + ": as long, as both wait for the data loader"
	}
	if hand.EpochHours == nil {
		return words + ": " + long
	}
	epoch, _, _ := strings.Cut(hours(*hand.EpochHours), " (")
	return fmt.Sprintf("%s: %s, an epoch %s", words, long, epoch)
}
