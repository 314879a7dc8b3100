package hardware

import (
	"errors"
	"sync"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

func TestDetectWithoutADriver(t *testing.T) {
	root := machine(t, map[string]string{
		"/proc/self/cgroup": "0::/\n", "/proc/self/mountinfo": v2Mount, "/sys/fs/cgroup/memory.max": "8589934592\n", "/sys/fs/cgroup/cpu.max": "200000 100000\n",
	})
	found, err := Detect(Options{Root: root, LibraryPath: "libasrconfig-absent.so.1"})
	require.NoError(t, err)
	assert.NotEmpty(t, found.NoGPUReason)
	assert.Nil(t, found.DriverVersion)
	assert.Equal(t, uint64(8*gib), found.Memory.TotalBytes)
	assert.Equal(t, 2.0, found.CPU.UsableCores)
	text, err := json.Marshal(found)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"gpus":[]`)

	_, err = OpenDevices(Options{LibraryPath: "libasrconfig-absent.so.1"})
	require.Error(t, err)
	assert.Equal(t, fault.NotFound, fault.From(err).Code)
}

func TestPlanned(t *testing.T) {
	root := machine(t, nil)
	for text, expected := range map[string]struct {
		count int
		name  string
	}{
		"T4": {1, "Tesla T4"}, "2xT4": {2, "Tesla T4"}, "2×T4": {2, "Tesla T4"}, " 8 X A100-80GB ": {8, "NVIDIA A100-SXM4-80GB"},
		"1*4090": {1, "NVIDIA GeForce RTX 4090"}, "4x4090": {4, "NVIDIA GeForce RTX 4090"}, "4090": {1, "NVIDIA GeForce RTX 4090"}, "64xL4": {64, "NVIDIA L4"},
	} {
		planned, err := Planned(text, Options{Root: root})
		require.NoError(t, err, text)
		require.Len(t, planned.GPUs, expected.count, text)
		for i, gpu := range planned.GPUs {
			assert.Equal(t, i, gpu.Index)
			assert.Equal(t, expected.name, gpu.Name)
		}
		assert.Empty(t, planned.NoGPUReason)
		assert.Equal(t, 8, planned.CPU.LogicalCores)
		assert.Equal(t, uint64(64*gib), planned.Memory.TotalBytes)
	}
	for text, code := range map[string]fault.Code{
		"0xT4": fault.InvalidArgument, "65xT4": fault.InvalidArgument, "999999xT4": fault.InvalidArgument,
		"9999999xT4": fault.NotFound, "2x": fault.NotFound, "2xpotato": fault.NotFound, "": fault.NotFound, "-2xT4": fault.NotFound,
	} {
		_, err := Planned(text, Options{Root: root})
		require.Error(t, err, text)
		assert.Equal(t, code, fault.From(err).Code, text)
		assert.NotEmpty(t, fault.From(err).Hint, text)
	}
	_, err := Planned("T4", Options{Root: t.TempDir()})
	assert.ErrorContains(t, err, "meminfo")
}

func TestMeasureTakesPublishedFiguresOnlyForAKnownCard(t *testing.T) {
	u := unit{name: "Tesla T4", memory: func() (reading, error) { return reading{used: 1, total: 15360 * mib, free: 2}, nil },
		processes: func() []profile.Process { return []profile.Process{} }}
	gpu, err := measure(u, 3)
	require.NoError(t, err)
	assert.Equal(t, 3, gpu.Index)
	assert.Equal(t, "7.5", gpu.ComputeCapability, "the driver did not tell, the catalogue does")
	assert.Equal(t, 65.0, *gpu.TensorTFLOPS)

	u.name, u.computeCapability = "NVIDIA Tomorrow", "13.0"
	gpu, err = measure(u, 0)
	require.NoError(t, err)
	assert.Nil(t, gpu.TensorTFLOPS)
	assert.True(t, gpu.BF16)

	u.memory = func() (reading, error) { return reading{}, errors.New("gone") }
	_, err = measure(u, 0)
	assert.ErrorContains(t, err, "gone")
}

func TestDevicesAreSafeToShare(t *testing.T) {
	finished := 0
	devices := &Devices{finish: func() { finished++ }, units: []unit{{name: "Tesla T4",
		memory: func() (reading, error) { return reading{used: 1, total: 4, free: 2}, nil }}}}
	assert.Equal(t, 1, devices.Count())
	assert.Equal(t, "Tesla T4", devices.Properties(0).Name)
	var together sync.WaitGroup
	for range 8 {
		together.Add(1)
		go func() {
			defer together.Done()
			for range 200 {
				used, total, free, err := devices.Memory(0)
				if err != nil {
					assert.ErrorContains(t, err, "closed")
					continue
				}
				assert.Equal(t, [3]uint64{1, 4, 2}, [3]uint64{used, total, free})
			}
		}()
	}
	devices.Close()
	devices.Close()
	together.Wait()
	assert.Equal(t, 1, finished)
}
