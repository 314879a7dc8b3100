// Package hardware measures the machine as training will see it: the GPUs that CUDA shows to the process, the processors
// and the RAM after container limits. Figures that no driver tells come from the catalogue, core/gpus.
//
// GPUs come from NVML, the driver's management library, which is loaded when it is there; CPU and RAM from gopsutil;
// container limits from the cgroup files (cgroup.go). Nothing here needs CUDA, and a machine without a GPU is a normal
// answer, not an error.
package hardware

import (
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Options says what to look at. The zero value is this process on this machine with every GPU visible.
type Options struct {
	// VisibleDevices is CUDA_VISIBLE_DEVICES as the caller's process has it, nil when unset. It is passed in because Go
	// reads its environment once, at load, and would not see what Python sets later. "" and "-1" hide every GPU.
	VisibleDevices *string
	// DeviceOrder is CUDA_DEVICE_ORDER of that process, "" when unset.
	DeviceOrder string
	// CUDAOrder is the identifiers of its devices as CUDA numbers them, nil where CUDA does not run in it yet.
	CUDAOrder []string
	// LibraryPath is the NVML library to load, "" for "libnvidia-ml.so.1". One process can use one library only.
	LibraryPath string
	// Root is the folder that holds proc and sys, "" for "/". It does not redirect the driver.
	Root string
	// PID is the process whose tree is the training, so that memory of others is told apart; 0 is this process.
	PID int
}

// Detect measures this machine. A machine without a usable GPU gives a profile with no GPUs and the reason in words; the
// error is for a host that cannot be read (no /proc/meminfo under Root).
func Detect(options Options) (profile.Hardware, error) {
	found, err := hostOf(options.Root)
	if err != nil {
		return profile.Hardware{}, err
	}
	session, err := connect(options.LibraryPath)
	if err != nil {
		found.NoGPUReason = err.Error()
		return found, nil
	}
	defer session.close()
	found.DriverVersion, found.CUDAVersion = session.driverVersion, session.cudaVersion
	units, reason := session.visible(options)
	found.OrderNote = session.orderNote(options, units)
	for _, u := range units {
		gpu, err := measure(u, len(found.GPUs))
		if err != nil {
			reason = err.Error()
			continue
		}
		found.GPUs = append(found.GPUs, gpu)
	}
	if len(found.GPUs) == 0 {
		found.NoGPUReason = reason
	}
	return found, nil
}

// Planned is this host's CPU and RAM with GPUs from the catalogue in place of the measured ones: "T4", or "2xT4" for two.
// Unknown names give NotFound with the closest ones, counts outside 1..64 InvalidArgument. The driver is not asked.
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

// hostOf is the part of the profile that every machine has. GPUs is empty, not nil, so that it is a list in JSON.
func hostOf(root string) (profile.Hardware, error) {
	memory, err := OpenHost(root).Memory()
	if err != nil {
		return profile.Hardware{}, err
	}
	return profile.Hardware{GPUs: []profile.GPU{}, CPU: hostCPU(root), Memory: memory}, nil
}
