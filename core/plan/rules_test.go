package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

func TestMixedPrecision(t *testing.T) {
	t4, l4 := gpu("Tesla T4", "7.5", 15360*mib), gpu("NVIDIA L4", "8.9", 23034*mib)
	for _, s := range []struct {
		name       string
		gpus       []profile.GPU
		preset     string
		fp16, bf16 bool
		why        string
	}{
		{"Turing", []profile.GPU{t4}, Balanced, true, false, "15.00 GiB of GPU memory ≥ 8 GB (7.45 GiB); compute capability 7.5"},
		{"Ada", []profile.GPU{l4}, Balanced, false, true, "compute capability 8.9 has bfloat16"},
		{"both", []profile.GPU{l4, t4}, Balanced, true, false, "7.5 has no native bfloat16"},
		{"small", []profile.GPU{gpu("MIG 1g.5gb", "8.0", 4864*mib)}, Speed, false, false, "4.75 GiB of GPU memory, under 8 GB (7.45 GiB)"},
		{"exactly 8 GB", []profile.GPU{gpu("card", "8.6", 8e9)}, Balanced, false, true, "7.45 GiB of GPU memory ≥ 8 GB"},
		{"reproducible", []profile.GPU{l4}, Reproducible, false, false, "reproducible"},
		{"CPU", nil, Speed, false, false, "no GPU"},
	} {
		t.Run(s.name, func(t *testing.T) {
			fp16, bf16, reason := publishedPrecision(s.gpus, s.preset)
			assert.Equal(t, s.fp16, fp16)
			assert.Equal(t, s.bf16, bf16)
			assert.Contains(t, reason, s.why)
		})
	}
}

func TestComputeCapabilityRules(t *testing.T) {
	for _, s := range []struct {
		capability             string
		tf32, compile, slowF16 bool
	}{
		{"3.7", false, false, true}, {"7.0", false, true, false}, {"7.5", false, true, false}, {"8.0", true, true, false},
		{"12.0", true, true, false}, {"", false, false, false}, {"new", false, false, false}, {"-1", false, false, false},
	} {
		t.Run(s.capability, func(t *testing.T) {
			gpus := []profile.GPU{gpu("card", s.capability, 24e9)}
			on, _ := tf32(gpus, Balanced)
			assert.Equal(t, s.tf32, on)
			on, _ = tf32(gpus, Reproducible)
			assert.False(t, on)
			on, _ = torchCompile(gpus, Speed, true)
			assert.Equal(t, s.compile, on)
			on, _ = torchCompile(gpus, Balanced, true)
			assert.False(t, on)
			assert.Equal(t, s.slowF16, slowHalfWarning(gpus, true) != "")
			assert.Empty(t, slowHalfWarning(gpus, false))
		})
	}
}

func TestStreamingAndCaching(t *testing.T) {
	for _, s := range []struct {
		name              string
		bytes             int64
		hours             float64
		left              float64
		workers           int
		streaming, cached bool
	}{
		{"tiny", 1e6, 0.1, 8e9, 0, false, true},
		{"under 10 GB, 90 h", 9e9, 90, 50e9, 0, false, true},
		{"12 GB, 9 h", 12e9, 9, 50e9, 0, false, true},
		{"10 GB, 10 h", 10e9, 10, 50e9, 0, false, false},
		{"decoded larger than the RAM", 9e9, 90, 15e9, 0, false, false},
		{"one copy per worker too large", 9e9, 90, 50e9, 4, false, false},
		{"50 GB, 100 h", 50e9, 100, 500e9, 0, false, false},
		{"over 50 GB", 50e9 + 1, 20, 500e9, 0, true, false},
		{"over 100 h, yet under 10 GB", 5e9, 101, 500e9, 0, true, false},
	} {
		t.Run(s.name, func(t *testing.T) {
			d := profile.Dataset{SizeBytes: s.bytes, TotalHours: s.hours, DecodedBytes: 2 * s.bytes}
			streamed, reason := streaming(d)
			assert.Equal(t, s.streaming, streamed, reason)
			cached, reason := caching(d, streamed, s.workers, s.left)
			assert.Equal(t, s.cached, cached, reason)
		})
	}
	arrays := profile.Dataset{MeasuredCount: 2, Codecs: map[string]int{"array": 2}}
	_, reason := streaming(arrays)
	assert.Contains(t, reason, "0 B as arrays, 0 ms")
}

func TestWorkers(t *testing.T) {
	for _, s := range []struct {
		name       string
		ram, cores float64
		hours      float64
		heavy      bool
		room       float64
		want       int
	}{
		{"little RAM", 31.9e9, 16, 50, false, 31e9, 0},
		{"little RAM, small", 12.7e9, 2, 5, false, 12e9, 0},
		{"medium", 64e9, 6, 50, false, 50e9, 4},
		{"medium, many cores", 64e9, 64, 50, false, 50e9, 8},
		{"large", 64e9, 12, 500, false, 50e9, 8},
		{"heavy", 64e9, 12, 50, true, 50e9, 11},
		{"heavy, many cores", 64e9, 64, 50, true, 50e9, 16},
		{"small", 64e9, 12, 9.9, false, 50e9, 2},
		{"small, two cores", 64e9, 2, 5, false, 50e9, 1},
		{"small, one core", 64e9, 1, 5, false, 50e9, 0},
		{"small, memory short", 64e9, 12, 5, false, 1e9, 0},
		{"medium, memory short", 64e9, 12, 50, false, 3e9, 0},
		{"two cores", 64e9, 2, 50, false, 50e9, 0},
		{"part of a core", 64e9, 0.5, 50, true, 50e9, 0},
		{"fraction rounds down", 64e9, 5.9, 50, false, 50e9, 3},
	} {
		t.Run(s.name, func(t *testing.T) {
			l := loader{memory: profile.Memory{TotalBytes: uint64(s.ram)}, usableCores: s.cores, hours: s.hours, heavy: s.heavy,
				room: s.room, batchBytes: 8 * 20 * 64e3}
			count, reason := l.workers()
			assert.Equal(t, s.want, count, reason)
			d := &draft{Config: profile.Config{DataloaderNumWorkers: count}}
			d.writeLoader(l, pool{}, profile.Dataset{})
			assert.Equal(t, count > 0, d.DataloaderPersistentWorkers)
			if factor := d.DataloaderPrefetchFactor; assert.Equal(t, count > 0, factor != nil) && factor != nil {
				assert.Equal(t, map[bool]int{false: 3, true: 4}[s.heavy], *factor)
			}
		})
	}
}

// Batches of 8 × 20 s take 9.8 MiB; three lie ready in each worker, and one is computed.
func TestWorkersFitSharedMemory(t *testing.T) {
	for _, s := range []struct {
		free int64
		want int
	}{{64 << 20, 1}, {69 << 20, 2}, {1 << 30, 4}, {30 << 20, 0}, {0, 0}} {
		l := loader{memory: profile.Memory{TotalBytes: 64e9}, usableCores: 6, hours: 50, room: 50e9, batchBytes: 8 * 20 * 64e3, shared: &s.free}
		count, reason := l.workers()
		assert.Equal(t, s.want, count, reason)
		assert.Equal(t, count < 4, strings.Contains(reason, "/dev/shm"), reason)
		warning := l.sharedWarning(4)
		assert.Equal(t, count < 4, strings.Contains(warning, fmt.Sprintf("dataloader_num_workers=%d", count)), warning)
		assert.Empty(t, l.sharedWarning(0))
	}
	assert.Empty(t, loader{batchBytes: 64e12}.sharedWarning(8))
}

func TestOptimizers(t *testing.T) {
	for _, s := range []struct {
		given, name string
		model       int64 // bytes of parameters, gradients and state for 100 M parameters
		decay       float64
		warned      bool
	}{
		{"", "adamw_torch_fused", 1600e6, 0.01, false},
		{"adamw_torch", "adamw_torch", 1600e6, 0.01, false},
		{"adamw_torch_fused", "adamw_torch_fused", 1600e6, 0.01, false},
		{"adamw_bnb_8bit", "adamw_bnb_8bit", 1000e6, 0.01, false},
		{"adamw_8bit", "adamw_bnb_8bit", 1000e6, 0.01, false},
		{"adafactor", "adafactor", 801e6, 0, false},
		{"sgd", "sgd", 800e6, 0, true},
	} {
		t.Run(s.given, func(t *testing.T) {
			in := inputs()
			in.Model, in.Options.Optimizer = trainedModel(100_000_000), s.given
			c := planned(t, in)
			assert.Equal(t, s.name, c.Optimizer)
			assert.Equal(t, s.model, c.ModelMemoryBytes)
			assert.Equal(t, s.decay, c.WeightDecay)
			assert.Equal(t, s.warned, len(c.Warnings) == 1, c.Warnings)
		})
	}
}

func TestSplit(t *testing.T) {
	for _, s := range []struct{ batch, target, devices, micro, accumulation int }{
		{4, 32, 1, 4, 8}, {8, 30, 1, 6, 5}, {64, 48, 1, 48, 1}, {1, 7, 1, 1, 7}, {8, 1, 1, 1, 1}, {8, 64, 4, 8, 2},
		{8, 31, 1, 8, 4}, // prime: 32 and 30 are equally close, the larger batch wins
		{8, 11, 1, 6, 2}, // 12, not 8 x 1
		{16, 17, 1, 16, 1}, {2, 3, 1, 1, 3}, {4, 32, 3, 2, 5}, {8, 2, 4, 1, 1},
	} {
		micro, accumulation := split(s.batch, s.target, s.devices)
		assert.Equal(t, []int{s.micro, s.accumulation}, []int{micro, accumulation}, "split(%d, %d, %d)", s.batch, s.target, s.devices)
	}
}

func TestDevices(t *testing.T) {
	l4 := func() profile.GPU { return gpu("NVIDIA L4", "8.9", 24e9) }
	slice := l4()
	slice.MIG = true
	measured := l4()
	measured.Source = "driver"
	for _, s := range []struct {
		name                    string
		gpus                    []profile.GPU
		asked                   *int
		target                  int
		count, micro, effective int
		warning                 string
	}{
		{"all visible", []profile.GPU{l4(), l4()}, nil, 32, 2, 4, 32, ""},
		{"the smallest decides", []profile.GPU{l4(), gpu("Tesla T4", "7.5", 16e9)}, nil, 32, 2, 1, 32, "does not fit"},
		{"only the first", []profile.GPU{l4(), gpu("Tesla T4", "7.5", 16e9)}, pointer(1), 32, 1, 4, 32, ""},
		{"more than there are, catalogue", []profile.GPU{l4()}, pointer(4), 32, 4, 4, 32, ""},
		{"more than there are, driver", []profile.GPU{measured}, pointer(4), 32, 4, 4, 32, "only 1 GPU visible"},
		{"MIG slices", []profile.GPU{slice, slice}, nil, 32, 1, 4, 32, ""},
		{"target under the devices", []profile.GPU{l4(), l4(), l4(), l4()}, nil, 2, 4, 1, 4, "effective batch is 4"},
		{"target does not divide", []profile.GPU{l4(), l4(), l4()}, nil, 32, 3, 2, 30, "target_batch_size=30 would be met exactly"},
	} {
		t.Run(s.name, func(t *testing.T) {
			in := inputs()
			in.Hardware = machine(12, 64, s.gpus...)
			in.Options.DeviceCount, in.Options.TargetBatchSize = s.asked, s.target
			c := planned(t, in)
			assert.Equal(t, s.count, c.DeviceCount)
			assert.Equal(t, s.micro, c.PerDeviceTrainBatchSize)
			assert.Equal(t, s.effective, c.Effective())
			if s.warning == "" {
				assert.Empty(t, c.Warnings)
				return
			}
			assert.Contains(t, c.Warnings[0]+c.Warnings[len(c.Warnings)-1], s.warning)
		})
	}
}

func TestWarnings(t *testing.T) {
	for _, s := range []struct {
		name string
		edit func(in *Inputs)
		want string
	}{
		{"streaming", func(in *Inputs) { in.Dataset = clips(8, 200) }, "max_steps: about 8438 for 3 epochs (90000 clips × 3 / 32)"},
		{"long clips", func(in *Inputs) { in.Dataset.MaxS = 20 }, "mean clip (8.0 s); a batch with the longest (20.0 s)"},
		{"few clips", func(in *Inputs) { in.Dataset.SampleCount = 20 }, "20 clips, fewer than the effective batch of 32"},
		{"K80", func(in *Inputs) { in.Hardware.GPUs[0] = gpu("Tesla K80", "3.7", 24e9) }, "no tensor cores"},
	} {
		t.Run(s.name, func(t *testing.T) {
			in := inputs()
			s.edit(&in)
			c := planned(t, in)
			require.Len(t, c.Warnings, 1)
			assert.Contains(t, c.Warnings[0], s.want)
		})
	}
}
