//go:build linux && cgo

package hardware

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// functions tells which of the NVML functions are there that came after driver 450, the oldest that
// PyTorch 2 runs with. Calling one that the driver lacks ends the process, and neither an error nor a
// panic would come back, so every function is looked up once, before the first call.
type functions struct {
	memoryV2    bool // memory with the driver's reserve apart
	clockEvents bool // the new name of throttle reasons
	counters    bool // the hardware's own
}

// required are the functions that every driver from 450 on has, by name; of several names in a row
// any will do. go-nvml v0.13 binds the newest that it finds.
var required = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion",
	"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName",
	"nvmlDeviceGetUUID", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMemoryInfo",
	"nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetComputeRunningProcesses_v2 " +
		"nvmlDeviceGetComputeRunningProcesses",
	"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
	"nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetMaxClockInfo",
	"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature",
	"nvmlDeviceGetClockInfo",
	"nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons",
	"nvmlDeviceGetPcieThroughput", "nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEccErrors",
	"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlEventSetFree",
}

// findFunctions asks lookup, which gives an error for a name that is not there. missing is the
// first required function that has no name there; "" when the library can be used.
func findFunctions(lookup func(string) error) (available functions, missing string) {
	has := func(name string) bool { return lookup(name) == nil }
	for _, row := range required {
		if names := strings.Fields(row); !slices.ContainsFunc(names, has) {
			return functions{}, names[0]
		}
	}
	return functions{
		memoryV2:    has("nvmlDeviceGetMemoryInfo_v2"),
		clockEvents: has("nvmlDeviceGetCurrentClocksEventReasons"),
		counters: has("nvmlGpmQueryDeviceSupport") && has("nvmlGpmSampleAlloc") &&
			has("nvmlGpmSampleFree") && has("nvmlGpmSampleGet") && has("nvmlGpmMetricsGet"),
	}, ""
}

// refusesFunction tells answers that mean "not this way" from real failures.
func refusesFunction(result nvml.Return) bool {
	switch result {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT,
		nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return true
	}
	return false
}

// driverTrouble says in words what NVML's codes mean and what helps. go-nvml's own texts call
// nvmlErrorString, which an unknown driver may lack.
var driverTrouble = map[nvml.Return][2]string{
	nvml.ERROR_DRIVER_NOT_LOADED: {"driver not loaded",
		"load it (modprobe nvidia), or start the container with GPU access"},
	nvml.ERROR_LIB_RM_VERSION_MISMATCH: {"version mismatch between the driver's library and its " +
		"kernel module",
		"reboot, or reload the kernel module, after the driver update"},
	nvml.ERROR_NO_PERMISSION: {"no permission", "give this user access to /dev/nvidia*"},
	nvml.ERROR_GPU_IS_LOST: {"the GPU is lost",
		"reboot the machine; see dmesg for the Xid error"},
	nvml.ERROR_RESET_REQUIRED: {"the GPU needs a reset",
		"ask the administrator for nvidia-smi --gpu-reset, or reboot"},
	nvml.ERROR_INSUFFICIENT_POWER: {"a power cable is missing", "attach the GPU's power cables"},
	nvml.ERROR_IRQ_ISSUE: {"the kernel reports an interrupt problem with the GPU",
		"see dmesg"},
	nvml.ERROR_NOT_SUPPORTED: {"not supported by this GPU",
		"describe the GPU by its catalogue name instead"},
	nvml.ERROR_UNINITIALIZED: {"the driver was shut down", "open the devices again"},
}

// driverError words a failed NVML call. Every failure of the driver is NotFound: there is no usable
// GPU behind it.
func driverError(result nvml.Return, doing string) *fault.Error {
	if words, ok := driverTrouble[result]; ok {
		return fault.New(fault.NotFound, words[1], "%s: %s", doing, words[0])
	}
	return fault.New(fault.NotFound, "run nvidia-smi, which shows the driver's own diagnosis",
		"%s: %s", doing, fmt.Sprintf("NVML error %d", int(result)))
}

// counters are the hardware's own, which cards from Hopper on have (GPM): they tell what
// multiprocessors and tensor cores did between two samples, where the utilisation of NVML tells
// only that some kernel ran.
type counters struct{ older, newer nvml.GpmSample }

// counted are the shares of the time since the reading before that multiprocessors had work, and
// tensor cores computed.
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
	ask := nvml.GpmMetricsGetType{NumMetrics: 2, Sample1: w.counters.older,
		Sample2: w.counters.newer}
	ask.Metrics[0].MetricId, ask.Metrics[1].MetricId =
		uint32(nvml.GPM_METRIC_SM_UTIL), uint32(nvml.GPM_METRIC_ANY_TENSOR_UTIL)
	if result = w.driver.GpmMetricsGet(&ask); result != nvml.SUCCESS {
		return 0, 0, result
	}
	return ask.Metrics[0].Value / 100, ask.Metrics[1].Value / 100,
		nvml.Return(ask.Metrics[0].NvmlReturn)
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
		if made[i], result = w.driver.GpmSampleAlloc(); result != nvml.SUCCESS {
			if i > 0 {
				_ = made[0].Free()
			}
			return result
		}
	}
	w.counters = counters{made[0], made[1]}
	return nvml.SUCCESS
}

// free returns both samples back; before the driver is.
func (c *counters) free() {
	if c.older != nil {
		_ = c.older.Free()
		_ = c.newer.Free()
		*c = counters{}
	}
}
