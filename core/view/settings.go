package view

import (
	"fmt"
	"math"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
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
		"stratified": " of all lengths"}[c.LengthHandling]
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
	if len(c.MicroBatches) == 0 {
		return fmt.Sprintf("%d of the longest %s", c.MicroBatchSize, c.RowKind.Nouns())
	}
	long, full := c.MicroBatches[0], c.MicroBatches[len(c.MicroBatches)-1]
	length := func(m profile.MicroBatch) string {
		if c.RowKind.AreTexts() {
			return c.RowKind.Length(m.Seconds)
		}
		return rough(m.Seconds) + " s"
	}
	switch {
	case c.MicroBatching != "memory":
		return fmt.Sprintf("%d of up to %s", c.PerDeviceTrainBatchSize, length(long))
	case long == full:
		return fmt.Sprintf("%d of %s, sized by manager.train", long.Clips, length(long))
	}
	return fmt.Sprintf("from %d of %s to %d of %s, sized by manager.train", long.Clips,
		length(long), full.Clips, length(full))
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
	peak := units.InGiB(m.PeakBytes)
	if m.TotalBytes != nil {
		used, total := float64(m.PeakBytes), float64(*m.TotalBytes)
		peak = fmt.Sprintf("%s (%s)", part(used, total), units.Percent(used/max(1, total)))
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

// byHand is "2 × 16, fp16, without checkpointing, random order: 1.33× as long, an epoch 8.5 min".
func byHand(c profile.Config) string {
	hand := *c.ByHand
	words := hand.What + ": " + slowdown(c)
	switch {
	case hand.Name == "published":
		words = hand.What + " (published rule): " + slowdown(c)
	case c.MicroBatching == "fixed" && c.LengthHandling == "random":
		words = "the same settings, if found: one size in random order"
	}
	if hand.Why != "" {
		words += "; " + hand.Why
	}
	return words
}

// slowdown is "1.33× as long, an epoch 8.5 min": by hand, against the plan.
func slowdown(c profile.Config) string {
	hand, long := *c.ByHand, fmt.Sprintf("%.3g× as long", *c.ByHand.Speed)
	if math.Abs(*hand.Speed-1) < 0.005 {
		long = "the same time"
		if c.Times != nil && c.Times.Bound == "loader" {
			return long + ", as both wait for the data loader"
		}
	}
	if hand.EpochHours == nil {
		return long
	}
	epoch, _, _ := strings.Cut(hours(*hand.EpochHours), " (")
	return long + ", an epoch " + epoch
}
