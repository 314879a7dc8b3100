//go:build linux && cgo

package hardware

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// A mock panics when a function is called that the test did not define: that is how "never called"
// is checked here.

// fakeGPU is a device of a driver without the newer functions, and without MIG.
func fakeGPU(name string) *mock.Device {
	return &mock.Device{
		GetUUIDFunc:                    func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN },
		GetCudaComputeCapabilityFunc:   func() (int, int, nvml.Return) { return 8, 0, nvml.SUCCESS },
		GetMigModeFunc:                 func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED },
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED },
		GetNameFunc:                    func() (string, nvml.Return) { return name, nvml.SUCCESS },
		GetMemoryInfoFunc:              func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 100, Used: 60, Free: 40}, nvml.SUCCESS },
	}
}

func fakeLibrary(devices ...nvml.Device) *mock.Interface {
	return &mock.Interface{
		InitFunc:                       func() nvml.Return { return nvml.SUCCESS },
		SystemGetDriverVersionFunc:     func() (string, nvml.Return) { return "", nvml.SUCCESS },
		SystemGetCudaDriverVersionFunc: func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN },
		ShutdownFunc:                   func() nvml.Return { return nvml.SUCCESS },
		DeviceGetCountFunc:             func() (int, nvml.Return) { return len(devices), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			if devices[i] == nil {
				return nil, nvml.ERROR_GPU_IS_LOST
			}
			return devices[i], nvml.SUCCESS
		},
	}
}

func TestWhatADriverDoesNotTellIsLeftOut(t *testing.T) {
	lib := fakeLibrary(fakeGPU("Tesla V100"))
	opened, err := start(lib, functions{})
	require.NoError(t, err)
	assert.Nil(t, opened.driverVersion)
	assert.Nil(t, opened.cudaVersion)
	gpu, err := measure(opened.boards[0].unit, 0)
	require.NoError(t, err)
	assert.Equal(t, uint64(60), *gpu.MemoryUsedBytes)
	assert.Empty(t, gpu.Processes)
	assert.NotNil(t, gpu.Processes, "an empty list in JSON, not null")
	opened.close()
	assert.Len(t, lib.ShutdownCalls(), len(lib.InitCalls()))
}

func TestNothingIsCalledAfterAFailedInit(t *testing.T) {
	lib := &mock.Interface{InitFunc: func() nvml.Return { return nvml.ERROR_UNKNOWN }}
	_, err := start(lib, functions{memoryV2: true})
	require.ErrorContains(t, err, "NVML error 999")
	assert.Equal(t, fault.NotFound, fault.From(err).Code)
	assert.NotEmpty(t, fault.From(err).Hint)
}

func TestShutdownWhenTheCountFails(t *testing.T) {
	lib := fakeLibrary()
	lib.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_NO_PERMISSION }
	_, err := start(lib, functions{})
	require.ErrorContains(t, err, "no permission")
	assert.Len(t, lib.ShutdownCalls(), 1)
}

func TestABrokenBoardKeepsItsPlace(t *testing.T) {
	opened, err := start(fakeLibrary(nil, fakeGPU("Tesla T4")), functions{})
	require.NoError(t, err)
	second, zero := "1", "0"
	units, _ := opened.visible(Options{VisibleDevices: &second})
	require.Len(t, units, 1)
	assert.Equal(t, "Tesla T4", units[0].name)
	units, reason := opened.visible(Options{VisibleDevices: &zero})
	assert.Empty(t, units)
	assert.Equal(t, "GPU 0 cannot be opened: the GPU is lost", reason)
	units, _ = opened.visible(Options{})
	assert.Len(t, units, 1)
}

func TestMemoryFallsBackOnceToTheFirstVersion(t *testing.T) {
	device := fakeGPU("Tesla T4")
	device.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{}, nvml.ERROR_ARGUMENT_VERSION_MISMATCH
	}
	u := describe(device, functions{memoryV2: true})
	for range 3 {
		found, err := u.memory()
		require.NoError(t, err)
		assert.Equal(t, reading{used: 60, total: 100, free: 40}, found)
	}
	assert.Len(t, device.GetMemoryInfo_v2Calls(), 1)

	device.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_GPU_IS_LOST }
	_, err := describe(device, functions{memoryV2: true}).memory()
	assert.ErrorContains(t, err, "the GPU is lost", "a failure is told, not covered up by the other function")
}

func TestImpossibleReadingsAreRefused(t *testing.T) {
	for _, memory := range []nvml.Memory{{}, {Total: 1 << 45, Free: 1}, {Total: 10, Used: 11}, {Total: 10, Free: 11}} {
		device := fakeGPU("Tesla T4")
		device.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return memory, nvml.SUCCESS }
		_, err := describe(device, functions{}).memory()
		assert.ErrorContains(t, err, "impossible memory", "%+v", memory)
	}
}

func TestMIGListing(t *testing.T) {
	parent := fakeGPU("NVIDIA A100-SXM4-40GB")
	parent.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS }
	parent.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 1 << 30, nvml.SUCCESS }
	places := map[int]string{0: "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 3: "NVIDIA A100-SXM4-40GB"}
	parent.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if name, taken := places[i]; taken {
			return fakeGPU(name), nvml.SUCCESS
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	b := describeBoard(parent, functions{}, nil)
	require.Len(t, b.slices, 2)
	assert.LessOrEqual(t, len(parent.GetMigDeviceHandleByIndexCalls()), maxSlices)
	assert.Equal(t, "NVIDIA A100-SXM4-40GB MIG", b.slices[1].name, "an old driver's slice must not pass for the whole card")
	for _, slice := range b.slices {
		assert.True(t, slice.mig)
		assert.Equal(t, "8.0", slice.computeCapability)
	}
	parent.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	assert.ErrorContains(t, describeBoard(parent, functions{}, nil).err, "cannot be listed")

	places = nil
	parent.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	opened := &session{boards: []board{describeBoard(parent, functions{}, nil)}}
	_, reason := opened.visible(Options{})
	assert.Contains(t, reason, "no MIG instance exists")
}

func TestFindFunctions(t *testing.T) {
	lookupWithout := func(names ...string) func(string) error {
		return func(wanted string) error {
			if slices.Contains(names, wanted) {
				return errors.New("undefined symbol")
			}
			return nil
		}
	}
	found, missing := findFunctions(lookupWithout())
	assert.Empty(t, missing)
	assert.Equal(t, functions{true, true, true}, found)
	for _, row := range required {
		names := strings.Fields(row)
		_, missing = findFunctions(lookupWithout(names...))
		assert.Equal(t, names[0], missing)
		_, missing = findFunctions(lookupWithout(names[1:]...))
		assert.Empty(t, missing, "any name of a row will do")
	}
	found, _ = findFunctions(lookupWithout("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlGpmSampleFree"))
	assert.Equal(t, functions{}, found, "counters take all five functions")
}
