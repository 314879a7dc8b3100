//go:build linux && cgo

package hardware

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	defaultLibrary = "libnvidia-ml.so.1"
	maxSlices      = 64 // MIG devices that are believed of one board: cards of 2026 have up to 7
)

// loaded is the NVML library of this process. The first usable one stays: the linker binds each
// NVML function once, at its first call, so a second library would be asked for its symbols while
// the first one is called. For the same reason the file is never unloaded.
var loaded struct {
	sync.Mutex
	path      string
	library   nvml.Interface
	functions functions
}

// connect loads the library and starts a session. Every failure is NotFound and worded as the
// reason for having no GPU.
func connect(path string) (*session, error) {
	if path == "" {
		path = defaultLibrary
	}
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.library == nil {
		available, err := load(path)
		if err != nil {
			return nil, err
		}
		loaded.path, loaded.functions = path, available
		loaded.library = nvml.New(nvml.WithLibraryPath(path))
	} else if loaded.path != path {
		return nil, fault.New(fault.NotFound, "use one NVML library per process",
			"cannot use the NVML library %q: this process already uses %q", fault.Shorten(path),
			fault.Shorten(loaded.path))
	}
	return start(loaded.library, loaded.functions)
}

// load opens the file and lists the functions it has. It comes before Init, because go-nvml calls
// nvmlInit without looking it up, which ends the process where the file is some other library.
func load(path string) (functions, error) {
	// global: the calls through cgo would not find the functions otherwise
	file := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := file.Open(); err != nil {
		if strings.Contains(err.Error(), "No such file") {
			return functions{}, fault.New(fault.NotFound,
				"install the NVIDIA driver, or start the container with GPU access",
				"no NVIDIA driver: its library %s was not found", fault.Shorten(path))
		}
		return functions{}, fault.Wrap(err, fault.NotFound, "reinstall the NVIDIA driver",
			"the NVIDIA driver's library cannot be loaded")
	}
	available, missing := findFunctions(file.Lookup)
	if missing != "" {
		_ = file.Close()
		return functions{}, fault.New(fault.NotFound, "update the NVIDIA driver to 450 or newer",
			"%s cannot be used as the NVIDIA driver's library: it has no %s", fault.Shorten(path),
			missing)
	}
	return available, nil
}

// start initialises NVML and lists the boards. Init and Shutdown are counted by NVML across the
// process, so a session does not disturb others (PyTorch's, say). After a failed Init nothing is
// called, not even Shutdown.
func start(lib nvml.Interface, available functions) (*session, error) {
	if result := lib.Init(); result != nvml.SUCCESS {
		return nil, driverError(result, "the NVIDIA driver does not start")
	}
	opened := &session{close: func() {
		loaded.Lock()
		defer loaded.Unlock()
		// its only failures are "not initialised" and "unknown": nothing to do about either
		_ = lib.Shutdown()
	}}
	count, result := lib.DeviceGetCount()
	if result != nvml.SUCCESS {
		_ = lib.Shutdown()
		return nil, driverError(result, "the NVIDIA driver does not list its GPUs")
	}
	opened.driverVersion, opened.cudaVersion = versions(lib)
	for i := range min(count, maxBoards) {
		device, result := lib.DeviceGetHandleByIndex(i)
		if result != nvml.SUCCESS {
			broken := board{err: driverError(result, fmt.Sprintf("GPU %d cannot be opened", i))}
			broken.name = fmt.Sprintf("GPU %d (unusable)", i)
			opened.boards = append(opened.boards, broken)
			continue
		}
		opened.boards = append(opened.boards, describeBoard(device, available, lib))
	}
	return opened, nil
}

// versions returns those of the driver and of the newest CUDA that it runs; nil where not reported.
func versions(lib nvml.Interface) (driver, cuda *string) {
	if text, result := lib.SystemGetDriverVersion(); result == nvml.SUCCESS && text != "" {
		text = strings.ToValidUTF8(text, "?")
		driver = &text
	}
	if number, result := lib.SystemGetCudaDriverVersion(); result == nvml.SUCCESS && number > 0 {
		text := fmt.Sprintf("%d.%d", number/1000, number%1000/10) // 12040 is 12.4
		cuda = &text
	}
	return driver, cuda
}

// describeBoard reads what is known of a board, and of its slices where MIG is on.
func describeBoard(device nvml.Device, available functions, lib nvml.Interface) board {
	b := board{unit: describe(device, available)}
	b.watch = newWatcher(device, available, lib)
	if major, minor, result := device.GetCudaComputeCapability(); result == nvml.SUCCESS {
		b.computeCapability = fmt.Sprintf("%d.%d", major, minor)
	}
	mode, _, result := device.GetMigMode()
	if result != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return b // cards without MIG answer "not supported"
	}
	b.migMode = true
	count, result := device.GetMaxMigDeviceCount()
	if result != nvml.SUCCESS {
		b.err = driverError(result, fmt.Sprintf("the MIG devices of %s cannot be listed", b.name))
		return b
	}
	for i := range min(count, maxSlices) {
		slice, result := device.GetMigDeviceHandleByIndex(i)
		if result != nvml.SUCCESS {
			continue // nothing has this number: the numbers of MIG devices may have gaps
		}
		described := describeSlice(slice, b.unit, available)
		described.watch = newWatcher(device, available, lib)
		b.slices = append(b.slices, described)
	}
	return b
}

// describeSlice takes from the board what a slice's own handle may not report. Drivers before about
// R470 name a slice like its board; its name must not pass for that of the whole card.
func describeSlice(device nvml.Device, parent unit, available functions) unit {
	slice := describe(device, available)
	slice.mig = true
	slice.computeCapability = parent.computeCapability
	if slice.name == "" {
		slice.name = parent.name
	}
	if !strings.Contains(strings.ToUpper(slice.name), "MIG") {
		slice.name += " MIG"
	}
	return slice
}

// describe reads what a board and a slice have in common. What the driver does not report stays
// empty.
func describe(device nvml.Device, available functions) unit {
	u := unit{}
	if name, result := device.GetName(); result == nvml.SUCCESS {
		u.name = strings.ToValidUTF8(name, "?")
	}
	if uuid, result := device.GetUUID(); result == nvml.SUCCESS {
		u.uuid = strings.ToValidUTF8(uuid, "?")
	}
	meter := &memoryMeter{device: device}
	meter.v2.Store(available.memoryV2)
	u.memory = func() (reading, error) { return meter.read(u.name) }
	u.processes = func() []profile.Process { return processes(device) }
	return u
}

// memoryMeter reads one device's memory through the newest function that works for it.
type memoryMeter struct {
	device nvml.Device
	v2     atomic.Bool // cleared when the device refuses it, so that it is tried once only
}

func (m *memoryMeter) read(name string) (memory reading, err error) {
	result := nvml.ERROR_FUNCTION_NOT_FOUND
	if m.v2.Load() {
		var info nvml.Memory_v2
		info, result = m.device.GetMemoryInfo_v2()
		memory = reading{used: info.Used, total: info.Total, free: info.Free}
	}
	if refusesFunction(result) {
		m.v2.Store(false)
		var info nvml.Memory
		info, result = m.device.GetMemoryInfo()
		memory = reading{used: info.Used, total: info.Total, free: info.Free}
	}
	if result != nvml.SUCCESS {
		return reading{}, driverError(result, fmt.Sprintf("cannot read the memory of %q", name))
	}
	return memory, memory.check(name)
}

// processes lists the compute processes of a device; the list is empty where the driver does not
// report them.
func processes(device nvml.Device) []profile.Process {
	running := []profile.Process{}
	infos, result := device.GetComputeRunningProcesses()
	if result != nvml.SUCCESS {
		return running
	}
	for _, info := range infos {
		process := profile.Process{PID: info.Pid}
		if info.UsedGpuMemory <= maxGPUMemory { // "not available" is the largest number there is
			used := info.UsedGpuMemory
			process.MemoryBytes = &used
		}
		running = append(running, process)
	}
	return running
}
