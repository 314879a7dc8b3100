package diagnosis

import (
	"math"
	"strings"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const gb = 1e9

// healthyLog is a run log of a training in order: 200 steps of 1 s on a card of 16 GB, with an
// evaluation and a checkpoint.
func healthyLog() *runlog.Log {
	s := &runlog.Log{
		Version: runlog.Version, DurationS: 220, IntervalS: 0.1, Samples: 2200,
		GPUs: []runlog.GPU{{Name: "T4", TotalBytes: 16 * gb, PowerLimitW: 70, MaxClockMHz: 1590}},
		Host: runlog.Host{TotalBytes: 64 * gb, CPUs: 8, ShmTotalBytes: 8 * gb},
	}
	s.Activity.GPUs = make([]runlog.GPUSeries, 1)
	s.Memory = runlog.MemorySeries{TimesS: []float64{0}, HostUsed: runlog.Column{math.NaN()}, GPUUsed: []runlog.Column{{14 * gb}}}
	for i := range 220 {
		s.Activity.TimesS = append(s.Activity.TimesS, float64(i))
		appendReading(s, i)
	}
	atS := 0.0
	for i := 1; i <= 200; i++ {
		atS++
		mark(s, i, runlog.KindTrain, atS, 1, 0.02)
	}
	mark(s, 200, runlog.KindEvaluation, atS+10, 10, 0)
	mark(s, 200, runlog.KindCheckpoint, atS+15, 5, 0)
	return s
}

func appendReading(s *runlog.Log, _ int) {
	host := []float64{0.6, 0.5, 0.9, 30 * gb, 0, 20 * gb, 8 * gb, 1 * gb, 50e6, 1e6, 0, 0}
	for i, column := range s.Activity.Columns() {
		*column = append(*column, host[i])
	}
	card := []float64{0.9, 0.5, 0.7, 0.4, 65, 70, 1500, 0, 1e9, 0.2e9, math.NaN(), 0, 0}
	for i, column := range s.Activity.GPUs[0].Columns() {
		*column = append(*column, card[i])
	}
}

func mark(s *runlog.Log, number int, kind string, atS, spent, waited float64) {
	m := &s.Steps
	m.Number, m.TimesS, m.Kind = append(m.Number, uint64(number)), append(m.TimesS, atS), append(m.Kind, kind)
	m.Covers, m.GPU = append(m.Covers, 1), append(m.GPU, 0)
	for column, value := range map[*runlog.Column]float64{
		&m.SpentS: spent, &m.WaitedS: waited, &m.AudioS: 80, &m.PaddedS: 100, &m.LongestS: 12, &m.Allocated: 5 * gb, &m.Reserved: 14 * gb,
		&m.PeakAllocated: 13.2 * gb, &m.PeakReserved: 14 * gb, &m.Headroom: 10.5 * gb, &m.ArithmeticS: math.NaN(),
	} {
		*column = append(*column, value)
	}
}

func fill(c runlog.Column, value float64) {
	for i := range c {
		c[i] = value
	}
}

func pointer[T any](value T) *T { return &value }

func kinds(findings []Finding) (names []string) {
	for _, f := range findings {
		names = append(names, f.Kind)
	}
	return names
}

func TestATrainingInOrderIsHealthy(t *testing.T) {
	findings := Of(healthyLog(), Run{})
	require.Equal(t, []string{"healthy"}, kinds(findings))
	assert.Equal(t, "GPU busy 90 % (target 75 to 95 %), GPU memory 82 % (target 80 to 95 %), CPU 60 % (target 50 to 80 %), waiting for data 2.0 % over steps 1 to 200 (3.57 min)",
		findings[0].Evidence)
}

func TestEveryRule(t *testing.T) {
	gpu := func(s *runlog.Log) *runlog.GPUSeries { return &s.Activity.GPUs[0] }
	for _, row := range []struct {
		name     string
		change   func(s *runlog.Log)
		run      Run
		kind     string
		advice   string
		evidence string
	}{
		{"no workers", func(s *runlog.Log) { fill(s.Steps.WaitedS, 0.45); fill(gpu(s).Utilization, 0.5) }, Run{Workers: pointer(0)},
			"loader", "set dataloader_num_workers=7, now 0", "45 % of the steps' time"},
		{"few workers", func(s *runlog.Log) { fill(s.Steps.WaitedS, 0.45); fill(gpu(s).Utilization, 0.5) }, Run{Workers: pointer(2)},
			"loader", "set dataloader_num_workers=4, now 2", "GPU busy 50 %"},
		{"CPU full", func(s *runlog.Log) {
			fill(s.Steps.WaitedS, 0.45)
			fill(gpu(s).Utilization, 0.5)
			fill(s.Activity.CPUShare, 0.97)
		},
			Run{Workers: pointer(4)}, "cpu_saturated", "dataset.map", "CPU 97 %"},
		{"storage", func(s *runlog.Log) {
			fill(s.Steps.WaitedS, 0.45)
			fill(gpu(s).Utilization, 0.5)
			fill(s.Activity.CPUShare, 0.2)
		},
			Run{Workers: pointer(8)}, "slow_storage", "local disk", "8 workers read 50 MB/s"},
		{"workers end with epochs", func(s *runlog.Log) { fill(s.Steps.WaitedS, 0.08) }, Run{Workers: pointer(4), PersistentWorkers: pointer(false)},
			"persistent_workers", "dataloader_persistent_workers=True", "8.0 %"},
		{"prefetch", func(s *runlog.Log) { fill(s.Steps.WaitedS, 0.08) }, Run{Workers: pointer(4), Prefetch: pointer(1)},
			"prefetch", "dataloader_prefetch_factor=4", "prefetch factor of 1"},
		{"small batch", func(s *runlog.Log) {
			fill(gpu(s).Utilization, 0.3)
			fill(s.Steps.PeakAllocated, 3*gb)
			fill(s.Steps.Allocated, 2*gb)
			fill(s.Steps.SpentS, 0.1)
			fill(s.Steps.WaitedS, 0)
			for i := range s.Steps.TimesS {
				s.Steps.TimesS[i] = float64(i) / 10
			}
		}, Run{PerDeviceBatch: pointer(2), Accumulation: pointer(8)}, "small_batch",
			"set per_device_train_batch_size=8 and gradient_accumulation_steps=2: the effective batch stays", "100 ms a step"},
		{"both idle", func(s *runlog.Log) { fill(gpu(s).Utilization, 0.3); fill(s.Activity.CPUShare, 0.1) }, Run{}, "both_idle", "local disk", "CPU 10 %"},
		{"PCIe", func(s *runlog.Log) { fill(gpu(s).Utilization, 0.6); fill(gpu(s).PCIeIn, 9*gb) }, Run{PinMemory: pointer(false)},
			"pcie", "dataloader_pin_memory=True", "9.2 GB/s"},
		{"heat", func(s *runlog.Log) {
			fill(gpu(s).Throttle, runlog.ThrottleHeat)
			fill(gpu(s).ClockMHz, 900)
			fill(gpu(s).Temperature, 93)
		},
			Run{}, "heat", "fans", "up to 93 °C"},
		{"power", func(s *runlog.Log) { fill(gpu(s).Throttle, runlog.ThrottlePower); fill(gpu(s).ClockMHz, 900) }, Run{}, "power", "nvidia-smi -pl", "65 of 70 W"},
		{"brake", func(s *runlog.Log) { fill(gpu(s).Throttle, runlog.ThrottleBrake) }, Run{}, "power_brake", "power supply", "100 %"},
		{"set clock", func(s *runlog.Log) { fill(gpu(s).Throttle, runlog.ThrottleSetting); fill(gpu(s).ClockMHz, 500) }, Run{}, "clock_setting", "-rgc", "31 %"},
		{"checkpoints", func(s *runlog.Log) { s.Steps.SpentS[201] = 80 }, Run{SaveSteps: pointer(100)}, "checkpoints", "set save_steps=1300, now 100", "28 %"},
		{"evaluations", func(s *runlog.Log) { s.Steps.SpentS[200] = 200 }, Run{EvalSteps: pointer(200)}, "evaluations", "set eval_steps=1800, now 200", "49 %"},
		{"logging", func(s *runlog.Log) { fill(s.Steps.SpentS, 0.8) }, Run{LoggingSteps: pointer(1)}, "logging", "set logging_steps=50, now 1", "% of the time"},
		{"swap", func(s *runlog.Log) { s.Activity.SwapUsed[219] = 4 * gb; fill(s.Activity.HostAvailable, 6*gb) }, Run{Workers: pointer(6)},
			"swap", "set dataloader_num_workers=3, now 6", "3.73 GiB"},
		{"RAM", func(s *runlog.Log) { s.Activity.HostAvailable[100] = 2 * gb }, Run{}, "host_ram", "halve dataloader_num_workers", "3.1 %"},
		{"shm", func(s *runlog.Log) { s.Activity.ShmUsed[7] = 7.8 * gb }, Run{}, "shm", "--shm-size=16g", "98 %"},
		{"others", func(s *runlog.Log) { fill(gpu(s).Others, 3*gb) }, Run{}, "other_process", "CUDA_VISIBLE_DEVICES", "2.79 GiB (19 %) of GPU 0"},
		{"others' CPU", func(s *runlog.Log) {
			s.Alerts = []runlog.Alert{{Kind: runlog.AlertCPU, AtS: 60, SinceS: pointer(30.0), ClearedS: pointer(52.0)},
				{Kind: runlog.AlertCPU, AtS: 190, SinceS: pointer(176.0), Text: "Other processes use 0.8 of 2 CPU cores", Advice: "stop them"}}
		}, Run{}, "cpu_contention", "stop them", "30 % of the time; then: Other processes use 0.8 of 2"},
		{"near the end", func(s *runlog.Log) { s.Steps.Headroom[50] = 8.3 * gb }, Run{PerDeviceBatch: pointer(8), Accumulation: pointer(4)},
			"near_out_of_memory", "per_device_train_batch_size=4 and gradient_accumulation_steps=8", "0.6 %"},
		{"out of memory", func(s *runlog.Log) { s.Events = []runlog.Event{{Kind: runlog.EventOOM}} }, Run{PerDeviceBatch: pointer(1)},
			"out_of_memory", "gradient_checkpointing=True", "once"},
		{"room", func(s *runlog.Log) { fill(s.Steps.PeakAllocated, 6*gb) }, Run{PerDeviceBatch: pointer(4), Accumulation: pointer(4)},
			"room", "per_device_train_batch_size=8 and gradient_accumulation_steps=2", "38 %"},
		{"XID", func(s *runlog.Log) { s.Events = []runlog.Event{{Kind: runlog.EventXID}} }, Run{}, "failing_gpu", "nvidia-smi -q", "(XID): 1"},
		{"gap", func(s *runlog.Log) { s.Events = []runlog.Event{{Kind: runlog.EventGap}, {Kind: runlog.EventGap}} }, Run{}, "gaps", "systemd-inhibit", "2 times"},
		{"precision", func(*runlog.Log) {}, Run{Precision: pointer("fp32")}, "precision", "bf16=True", "fp32"},
		{"full CPU", func(s *runlog.Log) { fill(gpu(s).Utilization, 0.6); fill(s.Activity.CPUShare, 1) }, Run{}, "cpu_bound", "dataset.map", "CPU 100 %, GPU busy 60 %"},
		{"full CPU and GPU", func(s *runlog.Log) { fill(s.Activity.CPUShare, 1) }, Run{}, "healthy", "nothing", "CPU 100 % (the GPU is busy nevertheless)"},
		{"unexplained", func(s *runlog.Log) { fill(gpu(s).Utilization, 0.4) }, Run{}, "low_gpu", "torch.profiler", "GPU busy 40 %"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := healthyLog()
			row.change(s)
			for _, f := range Of(s, row.run) {
				if f.Kind == row.kind {
					assert.Contains(t, f.Change, row.advice)
					assert.Contains(t, f.Evidence, row.evidence)
					return
				}
			}
			t.Fatalf("%s is not in %v", row.kind, kinds(Of(s, row.run)))
		})
	}
}

func TestAMomentOfContentionIsNoFinding(t *testing.T) {
	s := healthyLog()
	s.Alerts = []runlog.Alert{{Kind: runlog.AlertCPU, AtS: 60, SinceS: pointer(30.0), ClearedS: pointer(51.0)}}
	assert.Equal(t, []string{"healthy"}, kinds(Of(s, Run{})))
}

func TestOrderIsByGravityThenByWhatIsLost(t *testing.T) {
	s := healthyLog()
	fill(s.Steps.WaitedS, 0.4)
	fill(s.Activity.GPUs[0].Utilization, 0.5)
	fill(s.Activity.GPUs[0].Others, 1*gb)
	s.Events = []runlog.Event{{Kind: runlog.EventGap}, {Kind: runlog.EventXID}}
	assert.Equal(t, []string{"failing_gpu", "loader", "other_process", "gaps"}, kinds(Of(s, Run{})))
}

func TestALeakIsNotAnsweredWithASmallerBatch(t *testing.T) {
	leak := runlog.Alert{AtS: 100, Kind: runlog.AlertLeak, PerStep: pointer(64.0 * (1 << 20)), Since: pointer(uint64(60))}
	cleared, hosts, evaluation := leak, leak, leak
	cleared.ClearedS, hosts.GPU, evaluation.Kind = pointer(120.0), 1, runlog.AlertEvaluation
	const halve = "per_device_train_batch_size=4"
	for name, row := range map[string]struct {
		alerts    []runlog.Alert
		ranOutAt  float64 // 0: never
		kinds     []string
		evidence  string
		first     string
		halvingOf string // the finding that answers with a smaller micro-batch
	}{
		"leak only": {[]runlog.Alert{leak}, 0, []string{"leak", "near_out_of_memory"}, "GPU 0 grew by 64.0 MiB with every step since step 60; it still grew", "loss.item()", ""},
		"OOM only":  {nil, 190, []string{"out_of_memory"}, "once out of memory", halve, "out_of_memory"},
		"both": {[]runlog.Alert{leak}, 190, []string{"leak", "out_of_memory"}, "64.0 MiB with every step since step 60; it ran out 90 s after the first alert",
			"eval_accumulation_steps", ""},
		"a leak that ended before":    {[]runlog.Alert{cleared}, 190, []string{"out_of_memory"}, "once", halve, "out_of_memory"},
		"a leak that ended":           {[]runlog.Alert{cleared}, 0, []string{"near_out_of_memory"}, "0.6 % of the card were left", halve, "near_out_of_memory"},
		"a leak of another GPU":       {[]runlog.Alert{hosts}, 190, []string{"out_of_memory", "leak"}, "once", halve, "out_of_memory"},
		"an evaluation that gathers":  {[]runlog.Alert{evaluation}, 190, []string{"leak", "out_of_memory"}, "every batch of the evaluation", "eval_accumulation_steps=16", ""},
		"one that took much at once":  {[]runlog.Alert{{AtS: 100, Kind: runlog.AlertEvaluation}}, 190, []string{"out_of_memory"}, "once", halve, "out_of_memory"},
		"the one that ran out counts": {[]runlog.Alert{hosts, leak}, 190, []string{"leak", "out_of_memory"}, "GPU 0", "loss.item()", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthyLog()
			s.Alerts = row.alerts
			fill(s.Steps.Headroom, 8.3*gb) // of which a peak leaves 0.1
			if row.ranOutAt > 0 {
				s.Events = []runlog.Event{{AtS: row.ranOutAt, Kind: runlog.EventOOM}}
			}
			findings := Of(s, Run{PerDeviceBatch: pointer(8), Accumulation: pointer(2)})
			assert.Equal(t, row.kinds, kinds(findings))
			assert.Contains(t, findings[0].Evidence, row.evidence)
			assert.Contains(t, findings[0].Change, row.first)
			for _, f := range findings {
				assert.Equal(t, f.Kind == row.halvingOf, f.Setting == "per_device_train_batch_size", f.Change)
			}
		})
	}
}

func TestStoriesWithoutMuch(t *testing.T) {
	bare := healthyLog()
	bare.GPUs, bare.Activity.GPUs, bare.Memory.GPUUsed = nil, nil, nil
	fill(bare.Steps.Headroom, math.NaN())
	one := healthyLog()
	one.Steps = runlog.StepSeries{}
	mark(one, 1, runlog.KindTrain, 1, 1, 0.9)
	short := &runlog.Log{Version: 1, DurationS: 2}
	mark(short, 1, runlog.KindTrain, 1, 1, 0.9)
	for name, row := range map[string]struct {
		log  *runlog.Log
		kind string
	}{
		"empty": {&runlog.Log{}, "too_short"}, "one step": {short, "too_short"}, "no GPU": {bare, "healthy"}, "one step, readings": {one, "healthy"},
	} {
		findings := Of(row.log, Run{})
		require.NotEmpty(t, findings, name)
		assert.Equal(t, row.kind, findings[0].Kind, name)
		for _, f := range findings {
			assert.NotContains(t, f.Evidence+f.Change+f.Value, "NaN", name)
			assert.NotContains(t, f.Evidence+f.Change+f.Value, "Inf", name)
			assert.NotEmpty(t, f.Change, name)
			assert.False(t, f.Kind == "healthy" && strings.Contains(f.Evidence, "not known"), "%s: %s", name, f.Evidence)
		}
	}
}

func TestABusyCPUThatComputesIsTheLimit(t *testing.T) {
	s := healthyLog()
	s.GPUs, s.Activity.GPUs, s.Memory.GPUUsed = nil, nil, nil
	fill(s.Activity.CPUShare, 1)
	findings := Of(s, Run{})
	assert.Equal(t, []string{"cpu_bound"}, kinds(findings))
	assert.Equal(t, Info, findings[0].Severity)
	assert.Contains(t, findings[0].Evidence, "CPU 100 %, no GPU in use")
	assert.NotContains(t, findings[0].Title+findings[0].Change, "othing")
	s.Activity.TreeCPU = make(runlog.Column, len(s.Activity.CPUShare))
	fill(s.Activity.TreeCPU, 0.16)
	findings = Of(s, Run{})
	assert.Equal(t, []string{runlog.AlertCPU}, kinds(findings))
	assert.Contains(t, findings[0].Evidence, "CPU 100 %, this training 16 %")
	fill(s.Steps.WaitedS, 0.45)
	findings = Of(s, Run{})
	assert.Equal(t, "cpu_saturated", findings[0].Kind)
	assert.Contains(t, findings[0].Evidence, "CPU 100 %, this training 16 %")
	assert.Equal(t, stopOthers, findings[0].Change)
}

func TestATrainingOnTheCPUHasNoGPUThatWaits(t *testing.T) {
	s := healthyLog()
	s.GPUs, s.Activity.GPUs, s.Memory.GPUUsed = nil, nil, nil
	fill(s.Steps.WaitedS, 0.45)
	findings := Of(s, Run{Workers: pointer(0)})
	require.Equal(t, "loader", findings[0].Kind)
	assert.Equal(t, "The training waits for the data loader", findings[0].Title)
	assert.NotContains(t, findings[0].Evidence, "GPU")
}

func TestCardsThatDoNotTrainAreNotJudged(t *testing.T) {
	s := healthyLog()
	s.GPUs = append(s.GPUs, runlog.GPU{Name: "T4", TotalBytes: 16 * gb})
	s.Activity.GPUs = append(s.Activity.GPUs, runlog.GPUSeries{Utilization: make(runlog.Column, 220)})
	s.Memory.GPUUsed = append(s.Memory.GPUUsed, runlog.Column{0})
	assert.Equal(t, []string{"healthy"}, kinds(Of(s, Run{})))
}

// FuzzOf reads run logs as files may hold them, of which report refuses those that do not hold
// together.
func FuzzOf(f *testing.F) {
	whole, err := json.Marshal(healthyLog())
	require.NoError(f, err)
	f.Add(whole)
	f.Add([]byte(`{"alerts":[{"kind":"leak","gpu":3,"bytes_per_step":9},{"kind":"shm"}],"events":[{"kind":"out_of_memory","at_s":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s runlog.Log
		if json.Unmarshal(text, &s) != nil || s.Check() != nil {
			return
		}
		for _, finding := range Of(&s, Run{Workers: pointer(4), CPUs: pointer(-1), PerDeviceBatch: pointer(0), SaveSteps: pointer(-5)}) {
			if finding.Kind == "" || finding.Title == "" || finding.Evidence == "" || finding.Change == "" {
				t.Fatalf("%+v", finding)
			}
		}
	})
}
