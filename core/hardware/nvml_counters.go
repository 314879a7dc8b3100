//go:build linux && cgo

package hardware

import (
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// sources are what the driver makes for a watcher: queues of errors, samples of the hardware's counters, and their difference.
type sources struct {
	events  func() (nvml.EventSet, nvml.Return)
	sample  func() (nvml.GpmSample, nvml.Return)
	metrics func(*nvml.GpmMetricsGetType) nvml.Return
}

// counters are the hardware's own, which cards from Hopper on have (GPM): they tell what multiprocessors and tensor cores did between two
// samples, where the utilisation of NVML tells only that some kernel ran.
type counters struct{ older, newer nvml.GpmSample }

// counted are the shares of the time since the reading before that multiprocessors had work, and tensor cores computed.
func (w *watcher) counted(r *runlog.GPUReading) {
	r.SMActive = w.ask(gaugeCounters, func() (float64, nvml.Return) {
		active, tensor, result := w.countersSince()
		r.TensorActive = tensor
		return active, result
	})
	if math.IsNaN(r.SMActive) || !(r.TensorActive >= 0 && r.TensorActive <= 1) {
		r.TensorActive = math.NaN()
	}
}

func (w *watcher) countersSince() (active, tensor float64, result nvml.Return) {
	first := w.counters == counters{}
	if first {
		if result = w.openCounters(); result != nvml.SUCCESS {
			return 0, 0, result
		}
	}
	w.counters.older, w.counters.newer = w.counters.newer, w.counters.older
	if result = w.card.GpmSampleGet(w.counters.newer); result != nvml.SUCCESS {
		return 0, 0, result
	}
	if first {
		return 0, 0, nvml.ERROR_TIMEOUT // no difference yet, which is no failure either
	}
	ask := nvml.GpmMetricsGetType{NumMetrics: 2, Sample1: w.counters.older, Sample2: w.counters.newer}
	ask.Metrics[0].MetricId, ask.Metrics[1].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL), uint32(nvml.GPM_METRIC_ANY_TENSOR_UTIL)
	if result = w.sources.metrics(&ask); result != nvml.SUCCESS {
		return 0, 0, result
	}
	return ask.Metrics[0].Value / 100, ask.Metrics[1].Value / 100, nvml.Return(ask.Metrics[0].NvmlReturn)
}

// openCounters makes both samples; before Hopper the card answers that it has none.
func (w *watcher) openCounters() nvml.Return {
	support, result := w.card.GpmQueryDeviceSupport()
	if result != nvml.SUCCESS {
		return result
	}
	if support.IsSupportedDevice == 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	var made [2]nvml.GpmSample
	for i := range made {
		if made[i], result = w.sources.sample(); result != nvml.SUCCESS {
			if i > 0 {
				_ = made[0].Free()
			}
			return result
		}
	}
	w.counters = counters{made[0], made[1]}
	return nvml.SUCCESS
}

// free gives both samples back; before the driver is.
func (c *counters) free() {
	if c.older != nil {
		_ = c.older.Free()
		_ = c.newer.Free()
		*c = counters{}
	}
}
