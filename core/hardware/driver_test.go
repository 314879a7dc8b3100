//go:build linux && cgo

package hardware

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// These tests go the whole way through go-nvml into a C library that stands in for the driver
// (testdata/fake_nvml.c). A process can use one NVML library only, and a wrong call ends it, so
// every machine gets a process of its own: this test binary once more, which TestMain turns into
// the probe.

const (
	probeLibrary = "HARDWARE_PROBE_LIBRARY" // the library to probe; makes this binary the probe
	probeVisible = "HARDWARE_PROBE_VISIBLE" // CUDA_VISIBLE_DEVICES, unset when unset
	probeOrder   = "HARDWARE_PROBE_ORDER"   // identifiers as CUDA has listed them, by commas
	probeOther   = "HARDWARE_PROBE_OTHER"   // a second library to try afterwards
)

func TestMain(m *testing.M) {
	if path := os.Getenv(probeLibrary); path != "" {
		if err := json.NewEncoder(os.Stdout).Encode(probe(path)); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// answer is what the probe found, in the order in which it looked.
type answer struct {
	Hardware   profile.Hardware
	OpenError  string
	Count      int
	Names      []string
	Readings   [][3]uint64 // used, total, free of GPU 0
	ReadErrors []string
	AfterClose string
	Again      profile.Hardware
	Concurrent int // how many of four simultaneous Detects agreed with Again
	Other      string
	Properties runlog.GPU
	Activity   []map[string]any // readings of GPU 0
	Told       []string
}

func probe(path string) answer {
	options := Options{LibraryPath: path}
	if listed := os.Getenv(probeOrder); listed != "" {
		options.CUDAOrder = strings.Split(listed, ",")
	}
	if text, set := os.LookupEnv(probeVisible); set {
		options.VisibleDevices = &text
	}
	var found answer
	found.Hardware = detectOrPanic(options)
	if devices, err := OpenDevices(options); err != nil {
		found.OpenError = err.Error()
	} else {
		found.watch(devices)
	}
	found.Again = detectOrPanic(options)
	found.Concurrent = agreeing(options, found.Again)
	if other := os.Getenv(probeOther); other != "" {
		found.Other = detectOrPanic(Options{LibraryPath: other}).NoGPUReason
	}
	return found
}

func detectOrPanic(options Options) profile.Hardware {
	found, err := Detect(options)
	if err != nil {
		panic(err)
	}
	return found
}

func (a *answer) watch(devices *Devices) {
	a.Count = devices.Count()
	for i := range a.Count {
		a.Names = append(a.Names, devices.Properties(i).Name)
	}
	for range 3 {
		used, total, free, err := devices.Memory(0)
		if err != nil {
			a.ReadErrors = append(a.ReadErrors, err.Error())
			continue
		}
		a.Readings = append(a.Readings, [3]uint64{used, total, free})
	}
	a.Properties = devices.Properties(0)
	for range 2 {
		reading, events := devices.Activity(0)
		a.Activity = append(a.Activity, reading.Named())
		for _, e := range events {
			a.Told = append(a.Told, e.Kind+": "+e.Text)
		}
	}
	devices.Close()
	devices.Close()
	if reading, events := devices.Activity(0); len(events) > 0 || reading.Named()["power_w"] != nil {
		panic("a closed driver was read")
	}
	if _, _, _, err := devices.Memory(0); err != nil {
		a.AfterClose = err.Error()
	}
}

func agreeing(options Options, expected profile.Hardware) int {
	var together sync.WaitGroup
	same := make([]bool, 4)
	for i := range same {
		together.Add(1)
		go func() {
			defer together.Done()
			found, err := Detect(options)
			same[i] = err == nil && found.NoGPUReason == expected.NoGPUReason && assert.ObjectsAreEqual(expected.GPUs, found.GPUs)
		}()
	}
	together.Wait()
	count := 0
	for _, s := range same {
		if s {
			count++
		}
	}
	return count
}

// fakeDriver compiles the stand-in for one machine and gives its path.
func fakeDriver(t *testing.T, machine string) string {
	t.Helper()
	compiler := ""
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			compiler = path
			break
		}
	}
	if compiler == "" {
		t.Skip("no C compiler (cc, gcc, clang): the stand-in for the driver cannot be built")
	}
	library := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-DMACHINE_"+machine, "-o", library, "testdata/fake_nvml.c").CombinedOutput()
	require.NoError(t, err, "%s", output)
	return library
}

// ask runs the probe on a library, with further environment.
func ask(t *testing.T, library string, environment ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(append(os.Environ(), probeLibrary+"="+library), environment...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	require.NoError(t, command.Run(), "the probe died: %s", stderr.String())
	var found answer
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &found), "%s", stdout.String())
	return found
}

func TestRecordedMachines(t *testing.T) {
	t.Parallel()
	one := func(v float64) *float64 { return &v }
	size := func(mebibytes uint64) *uint64 { bytes := mebibytes * mib; return &bytes }
	t4 := profile.GPU{
		Index: 0, UUID: "GPU-aaaa0000-0000-0000-0000-000000000000", Name: "Tesla T4", ComputeCapability: "7.5",
		MemoryTotalBytes: 15360 * mib, MemoryFreeBytes: size(15360 - 442 - 103), MemoryUsedBytes: size(103),
		Processes:    []profile.Process{{PID: 4242, MemoryBytes: size(100)}},
		BandwidthGBs: one(320), TensorTFLOPS: one(65), FP32TFLOPS: one(8.1), PowerWatts: one(70), Source: "driver",
	}
	first, second := t4, t4
	first.MemoryFreeBytes, first.MemoryUsedBytes, first.Processes = size(15360-442), size(0), []profile.Process{}
	second.Index, second.UUID = 1, "GPU-bbbb0000-0000-0000-0000-000000000000"
	second.MemoryFreeBytes, second.MemoryUsedBytes, second.Processes = size(15360-442-11), size(11), []profile.Process{}
	tests := []struct {
		machine, driver, cuda string
		ecc, tensor           any // Turing counts no errors in this stand-in
		gpus                  []profile.GPU
	}{
		{"T4", "550.54.15", "12.4", nil, nil, []profile.GPU{t4}},
		{"TWO_T4", "550.54.15", "12.4", nil, nil, []profile.GPU{first, second}},
		{"L4", "580.105.08", "13.0", 0.0, nil, []profile.GPU{{
			UUID: "GPU-cccc0000-0000-0000-0000-000000000000", Name: "NVIDIA L4", ComputeCapability: "8.9", BF16: true,
			MemoryTotalBytes: 23034 * mib, MemoryFreeBytes: size(23034 - 497 - 1), MemoryUsedBytes: size(1), Processes: []profile.Process{},
			BandwidthGBs: one(300), TensorTFLOPS: one(121), FP32TFLOPS: one(30.3), PowerWatts: one(72), Source: "driver",
		}}},
		{"A100", "535.104.05", "12.2", 0.0, nil, []profile.GPU{{
			UUID: "GPU-dddd0000-0000-0000-0000-000000000000", Name: "NVIDIA A100-SXM4-40GB", ComputeCapability: "8.0", BF16: true,
			MemoryTotalBytes: 40960 * mib, MemoryFreeBytes: size(40960 - 615 - 2048), MemoryUsedBytes: size(2048),
			Processes:    []profile.Process{{PID: 77}}, // the driver says "not available"
			BandwidthGBs: one(1555), TensorTFLOPS: one(312), FP32TFLOPS: one(19.5), PowerWatts: one(400), Source: "driver",
		}}},
		{"H100_MIG", "570.124.06", "12.8", 0.0, 0.38, []profile.GPU{{
			UUID: "MIG-eeee1111-0000-0000-0000-000000000000", Name: "NVIDIA H100 80GB HBM3 MIG 3g.40gb", ComputeCapability: "9.0", BF16: true, MIG: true,
			MemoryTotalBytes: 40448 * mib, MemoryFreeBytes: size(40448 - 44), MemoryUsedBytes: size(44), Processes: []profile.Process{{PID: 9}},
			BandwidthGBs: one(1675), TensorTFLOPS: one(449.7), FP32TFLOPS: one(30.4), Source: "driver",
		}}},
	}
	for _, test := range tests {
		t.Run(test.machine, func(t *testing.T) {
			t.Parallel()
			found := ask(t, fakeDriver(t, test.machine))
			assert.Equal(t, test.gpus, found.Hardware.GPUs)
			assert.Empty(t, found.Hardware.NoGPUReason)
			assert.Equal(t, test.driver, profile.Or(found.Hardware.DriverVersion, ""))
			assert.Equal(t, test.cuda, profile.Or(found.Hardware.CUDAVersion, ""))
			assert.Equal(t, test.gpus, found.Again.GPUs, "a second start of the driver finds the same")
			assert.Equal(t, 4, found.Concurrent)

			require.Empty(t, found.OpenError)
			require.Equal(t, len(test.gpus), found.Count)
			gpu := test.gpus[0]
			expected := [3]uint64{*gpu.MemoryUsedBytes, gpu.MemoryTotalBytes, *gpu.MemoryFreeBytes}
			assert.Equal(t, [][3]uint64{expected, expected, expected}, found.Readings)
			assert.Equal(t, gpu.Name, found.Names[0])
			assert.Contains(t, found.AfterClose, "closed")
			require.Len(t, found.Activity, 2)
			assert.Equal(t, []any{65.0, test.ecc, test.tensor},
				[]any{found.Activity[1]["power_w"], found.Activity[1]["ecc_uncorrected"], found.Activity[1]["tensor_active"]})
			assert.Equal(t, 70.0, found.Properties.PowerLimitW)
			assert.Equal(t, gpu.Name, found.Properties.Name)
			assert.Empty(t, found.Told)
		})
	}
}

func TestADriverWhoseFiguresChange(t *testing.T) {
	t.Parallel()
	control := filepath.Join(t.TempDir(), "control")
	figures := make([]byte, 16*16*8)
	for i, value := range []uint64{1, 0, 3 << 30, 101, 50, 80_000, 91, 600, 0x40, 7, 8, 0, 0, 79, 0, 0} {
		binary.NativeEndian.PutUint64(figures[8*i:], value)
	}
	require.NoError(t, os.WriteFile(control, figures, 0o600))
	found := ask(t, fakeDriver(t, "T4"), "FAKE_NVML_CONTROL="+control)
	assert.Equal(t, uint64(3<<30), found.Readings[0][0])
	assert.Equal(t, []any{80.0, 91.0, 600.0, 2.0, 7000.0, nil}, []any{
		found.Activity[0]["power_w"], found.Activity[0]["temperature_c"], found.Activity[0]["clock_mhz"],
		found.Activity[0]["throttle"], found.Activity[0]["pcie_received_bytes_s"], found.Activity[0]["utilization"],
	})
	assert.Equal(t, []string{
		"nonsense: the driver reports impossible utilisation", "throttled: heat throttles the GPU", "xid: the driver reports Xid 79",
		"nonsense: the driver reports impossible utilisation",
	}, found.Told)
}

func TestMachinesWithoutUsableGPU(t *testing.T) {
	t.Parallel()
	tests := []struct{ machine, reason string }{
		{"NO_MODULE", "the NVIDIA driver does not start: driver not loaded"},
		{"MISMATCH", "the NVIDIA driver does not start: version mismatch between the driver's library and its kernel module"},
		{"EMPTY", "the NVIDIA driver is loaded but lists no GPU"},
		{"NOT_NVML", "cannot be used as the NVIDIA driver's library: it has no nvmlInit_v2"},
	}
	for _, test := range tests {
		t.Run(test.machine, func(t *testing.T) {
			t.Parallel()
			found := ask(t, fakeDriver(t, test.machine))
			assert.Empty(t, found.Hardware.GPUs)
			assert.Contains(t, found.Hardware.NoGPUReason, test.reason)
			assert.Equal(t, found.Hardware.NoGPUReason, found.Again.NoGPUReason)
			assert.Positive(t, found.Hardware.Memory.TotalBytes, "the CPU profile is there all the same")
			assert.Empty(t, found.Readings)
		})
	}
}

func TestMissingAndBrokenLibrary(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	text := filepath.Join(folder, "text.so")
	require.NoError(t, os.WriteFile(text, []byte("no library"), 0o600))
	for path, reason := range map[string]string{
		filepath.Join(folder, "absent.so"): "its library " + fault.Shorten(filepath.Join(folder, "absent.so")) + " was not found",
		text:                               "the NVIDIA driver's library cannot be loaded",
	} {
		found, err := Detect(Options{LibraryPath: path})
		require.NoError(t, err)
		assert.Empty(t, found.GPUs)
		assert.Contains(t, found.NoGPUReason, reason)
		_, err = OpenDevices(Options{LibraryPath: path})
		assert.ErrorContains(t, err, reason)
	}
}

func TestGPULostAfterStart(t *testing.T) {
	t.Parallel()
	found := ask(t, fakeDriver(t, "LOST"))
	require.Len(t, found.Hardware.GPUs, 1)
	assert.Len(t, found.Readings, 1, "Detect took the other of the two readings that this machine gives")
	require.Len(t, found.ReadErrors, 2)
	assert.Equal(t, `cannot read the memory of "Tesla T4": the GPU is lost`, found.ReadErrors[0])
	assert.Empty(t, found.Again.GPUs)
	assert.Equal(t, found.ReadErrors[0], found.Again.NoGPUReason)
}

// TestUnlikeGPUsInCUDAsOrder: profile, readings and names by the numbers that CUDA gives, once it
// has been asked.
func TestUnlikeGPUsInCUDAsOrder(t *testing.T) {
	t.Parallel()
	library := fakeDriver(t, "T4_V100")
	const t4, v100 = "GPU-aaaa0000-0000-0000-0000-000000000000", "GPU-ffff0000-0000-0000-0000-000000000000"
	for _, test := range []struct {
		environment []string
		names       []string
		note        string
	}{
		{nil, []string{"Tesla T4", "Tesla V100-SXM2-16GB"}, ""},
		{[]string{probeOrder + "=" + v100 + "," + t4}, []string{"Tesla V100-SXM2-16GB", "Tesla T4"}, ""},
		{[]string{probeVisible + "=0"}, []string{"Tesla T4"}, "may select other GPUs than those planned for (Tesla T4)"},
		{[]string{probeVisible + "=0", probeOrder + "=" + v100}, []string{"Tesla V100-SXM2-16GB"}, ""},
	} {
		found := ask(t, library, test.environment...)
		assert.Equal(t, test.names, found.Names)
		require.Len(t, found.Hardware.GPUs, len(test.names))
		for i, gpu := range found.Hardware.GPUs {
			assert.Equal(t, test.names[i], gpu.Name)
			assert.Equal(t, i, gpu.Index)
		}
		if test.note == "" {
			assert.Empty(t, found.Hardware.OrderNote)
		}
		assert.Contains(t, found.Hardware.OrderNote, test.note)
	}
}

func TestSecondLibraryIsRefused(t *testing.T) {
	t.Parallel()
	found := ask(t, fakeDriver(t, "T4"), probeOther+"="+fakeDriver(t, "L4"))
	require.Len(t, found.Hardware.GPUs, 1)
	assert.Contains(t, found.Other, "this process already uses")
	assert.Contains(t, fmt.Sprint(found.Again.GPUs), "Tesla T4")
}
