// Package hardware measures the machine as training will see it: the GPUs that CUDA shows to the
// process, the processors and the RAM after container limits. Figures that no driver tells come
// from the catalogue, core/gpus.
//
// GPUs come from NVML, the driver's management library, which is loaded when it is there; CPU and
// RAM from gopsutil; container limits from the cgroup files (cgroup.go). Nothing here needs CUDA,
// and a machine without a GPU is a normal answer, not an error.
package hardware

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Options says what to look at. The zero value is this process on this machine with every GPU
// visible.
type Options struct {
	// CUDA_VISIBLE_DEVICES as the caller's process has it, null when unset: Go reads its
	// environment once, at load, and would not see what Python sets later. "" and "-1" hide every
	// GPU
	VisibleDevices *string `json:"visible_devices"`
	DeviceOrder    string  `json:"device_order"` // CUDA_DEVICE_ORDER of that process, "" when unset
	// UUIDs of its devices as CUDA numbers them; null before CUDA runs in it
	CUDAOrder []string `json:"cuda_order"`
	// the NVML library to load, "" for libnvidia-ml.so.1; one process can use one alone
	LibraryPath string `json:"library_path"`
	// the folder that holds proc and sys, "" for "/"; it does not redirect the driver
	Root string `json:"root"`
	// whose process tree is the training, so that memory of others is told apart; 0: the caller's
	PID int `json:"pid"`
}

// Detect measures this machine. A machine without a usable GPU gives a profile with no GPUs and the
// reason in words; the error is for a host that cannot be read (no /proc/meminfo under Root).
func Detect(options Options) (profile.Hardware, error) {
	hardware, err := hostOf(options.Root)
	if err != nil {
		return profile.Hardware{}, err
	}
	session, err := connect(options.LibraryPath)
	if err != nil {
		hardware.NoGPUReason = err.Error()
		return hardware, nil
	}
	defer session.close()
	hardware.DriverVersion, hardware.CUDAVersion = session.driverVersion, session.cudaVersion
	units, reason := session.visible(options)
	hardware.OrderNote = session.orderNote(options, units)
	for _, u := range units {
		gpu, err := measure(u, len(hardware.GPUs))
		if err != nil {
			reason = err.Error()
			continue
		}
		hardware.GPUs = append(hardware.GPUs, gpu)
	}
	if len(hardware.GPUs) == 0 {
		hardware.NoGPUReason = reason
	}
	return hardware, nil
}

// Planned is this host's CPU and RAM with GPUs from the catalogue in place of the measured ones:
// "T4", or "2xT4" for two. Unknown names give NotFound with the closest ones, counts outside 1..64
// InvalidArgument. The driver is not asked.
func Planned(gpu string, options Options) (profile.Hardware, error) {
	entry, count, err := gpus.Parse(gpu)
	if err != nil {
		return profile.Hardware{}, err
	}
	card := entry.GPU()
	planned, err := hostOf(options.Root)
	if err != nil {
		return profile.Hardware{}, err
	}
	for i := range count {
		card.Index = i
		planned.GPUs = append(planned.GPUs, card)
	}
	return planned, nil
}

// hostOf is the part of the profile that every machine has. GPUs is empty, not nil, so that it is a
// list in JSON.
func hostOf(root string) (profile.Hardware, error) {
	memory, err := OpenHost(root).Memory()
	if err != nil {
		return profile.Hardware{}, err
	}
	return profile.Hardware{GPUs: []profile.GPU{}, CPU: hostCPU(root), Memory: memory}, nil
}

// session is an open connection to the driver: plain data and closures, so that everything above it
// is free of NVML types and builds where NVML does not exist.
type session struct {
	driverVersion, cudaVersion *string
	boards                     []board // NVML's order, which is PCI bus order
	close                      func()  // call once; nothing of the session may be used afterwards
}

// board is one GPU as the driver lists it.
type board struct {
	unit
	migMode bool   // MIG is on: CUDA runs on the slices, never on the board itself
	slices  []unit // its MIG devices
	err     error  // why it cannot be used; it keeps its place, because indices count it
}

// unit is something that CUDA can run on: a whole GPU or a MIG slice.
type unit struct {
	uuid, name        string
	computeCapability string // "7.5"; "" when the driver does not report it
	mig               bool
	memory            func() (reading, error)
	processes         func() []profile.Process
	watch             watching // nil where there is nothing but memory
}

// watching reads what a card does. close comes before that of the session.
type watching interface {
	facts() (powerLimit, maxClock float64)
	read() (runlog.GPUReading, []runlog.Event)
	close()
}

// reading is one look at a GPU's memory, in bytes. With drivers that tell reserved memory apart
// (R510 and newer) used is what processes hold, and used+free falls short of total by the reserve;
// with older ones used includes the reserve.
type reading struct{ used, total, free uint64 }

// maxBoards bounds how many GPUs are believed of a driver and read from CUDA_VISIBLE_DEVICES.
const maxBoards = 1024

// maxGPUMemory bounds what is believed of a driver: 16 TiB, some sixty times the largest card of
// 2026.
const maxGPUMemory = 1 << 44

// check refuses readings that no GPU can have.
func (r reading) check(name string) error {
	if r.total == 0 || r.total > maxGPUMemory || r.used > r.total || r.free > r.total {
		return fault.New(fault.Corrupt,
			"run nvidia-smi; if it shows the same, reload the driver or reboot",
			"the driver reports impossible memory for %q: %d B used and %d B free of %d B", name,
			r.used, r.free, r.total)
	}
	return nil
}

// measure reads one visible unit into the profile. index is its CUDA ordinal.
func measure(u unit, index int) (profile.GPU, error) {
	memory, err := u.memory()
	if err != nil {
		return profile.GPU{}, err
	}
	gpu := profile.GPU{
		Index: index, UUID: u.uuid, Name: u.name, ComputeCapability: u.computeCapability,
		MemoryTotalBytes: memory.total, MemoryFreeBytes: &memory.free,
		MemoryUsedBytes: &memory.used,
		Processes:       u.processes(), MIG: u.mig, Source: "driver",
	}
	if entry, ok := gpus.Match(u.name, memory.total); ok {
		entry.Fill(&gpu)
		if gpu.ComputeCapability == "" {
			gpu.ComputeCapability = entry.ComputeCapability
		}
	}
	gpu.BF16 = gpus.NativeBF16(gpu.ComputeCapability)
	return gpu, nil
}

// visible returns the units in CUDA's order: as CUDA itself has listed them, else by
// CUDA_VISIBLE_DEVICES and CUDA's MIG rules. With no unit left the reason says why.
func (s *session) visible(options Options) (units []unit, reason string) {
	if listed := s.inCUDAOrder(options.CUDAOrder); listed != nil {
		return listed, ""
	}
	setting := options.VisibleDevices
	if len(s.boards) == 0 {
		return nil, "the NVIDIA driver is loaded but lists no GPU (a container may have been " +
			"started without one)"
	}
	chosen, firstTrouble := selectUnits(s.boards, setting)
	switch {
	case len(chosen) > 0:
		return chosen, ""
	case firstTrouble != "":
		return nil, firstTrouble
	case setting != nil:
		return nil, fmt.Sprintf("hidden by CUDA_VISIBLE_DEVICES=%q (the driver lists %s)",
			fault.Shorten(*setting), s.names())
	default:
		return nil, "MIG mode is on but no MIG instance exists (create one with nvidia-smi mig " +
			"-cgi … -C)"
	}
}

// names lists the boards for a message, at most four of them.
func (s *session) names() string {
	var names []string
	for _, b := range s.boards {
		names = append(names, b.name)
	}
	return units.Listed(names, ", ", 4)
}
