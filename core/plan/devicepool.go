package plan

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// pool is the devices that share one optimizer step. Every device gets the micro-batch of the
// tightest one.
type pool struct {
	gpus []profile.GPU // those present and used, in CUDA order; empty on a CPU
	// devices planned for; may exceed len(gpus) when the user plans for a larger machine
	count    int
	tightest int     // index into gpus
	planned  float64 // bytes that the margin applies to
	reason   string  // of count
	warnings []string
}

func (p pool) onCPU() bool { return len(p.gpus) == 0 }

// where names the memory that is planned from.
func (p pool) where() string {
	if p.onCPU() {
		return "host RAM"
	}
	g := p.gpus[p.tightest]
	return fmt.Sprintf("GPU %d (%s)", g.Index, g.Name)
}

// newPool picks the devices: on a CPU one, else Options.DeviceCount or all visible GPUs, the first
// ones in CUDA order. A process can use one MIG slice only, so slices count as one device unless
// the user says otherwise.
func newPool(h profile.Hardware, o Options) pool {
	if len(h.GPUs) == 0 {
		return cpuPool(h)
	}
	p := pool{count: len(h.GPUs), reason: fault.Plural(len(h.GPUs), "visible GPU")}
	switch {
	case o.DeviceCount != nil:
		p.count, p.reason = *o.DeviceCount, fmt.Sprintf("asked for; %s visible",
			fault.Plural(len(h.GPUs), "GPU"))
	case len(h.GPUs) > 1 && h.GPUs[0].MIG:
		p.count, p.reason = 1, fmt.Sprintf(
			"%d MIG slices are visible, and one process can use only the first", len(h.GPUs))
	}
	p.gpus = h.GPUs[:min(p.count, len(h.GPUs))]
	if h.OrderNote != "" {
		p.warnings = append(p.warnings, h.OrderNote)
	}
	p.chooseTightest(o.SafetyMargin)
	p.warnDevices()
	return p
}

func cpuPool(h profile.Hardware) pool {
	p := pool{count: 1, planned: float64(h.Memory.AvailableBytes), reason: "no GPU"}
	if h.NoGPUReason != "" {
		p.reason = h.NoGPUReason
	}
	p.warnings = []string{fmt.Sprintf(
		"Planned for training on the CPU: %s. It works, but is far slower than any GPU of the "+
			"catalogue.", p.reason)}
	return p
}

// chooseTightest finds the GPU with the least memory to plan from.
func (p *pool) chooseTightest(margin float64) {
	for i, g := range p.gpus {
		planned, warning := plannedMemory(g, margin)
		if i == 0 || planned < p.planned {
			p.tightest, p.planned = i, planned
		}
		if warning != "" {
			p.warnings = append(p.warnings, warning)
		}
	}
}

// plannedMemory returns the bytes that the margin applies to: the total as the driver reports it,
// or the free memory when so much is taken that the margin does not cover it.
func plannedMemory(g profile.GPU, margin float64) (bytes float64, warning string) {
	total := float64(g.MemoryTotalBytes)
	if g.MemoryFreeBytes == nil || float64(*g.MemoryFreeBytes) >= total*margin {
		return total, ""
	}
	free := float64(*g.MemoryFreeBytes)
	return free, fmt.Sprintf("GPU %d (%s) has %s of %s free, less than the safety margin allows "+
		"(%s): planned from the free memory. "+
		"Stop the process that uses it, or delete models in this notebook, and plan again.",
		g.Index, g.Name, units.Size(free), units.Size(total), units.Size(total*margin))
}

func (p *pool) warnDevices() {
	first := p.gpus[0]
	if p.count > len(p.gpus) && first.Source == "driver" {
		p.warnings = append(p.warnings,
			fmt.Sprintf("Planned for %d devices, but only %s visible: the others are assumed to "+
				"be like %s.",
				p.count, fault.Plural(len(p.gpus), "GPU"), p.where()))
	}
	for _, g := range p.gpus[1:] {
		if g.Name != first.Name {
			p.warnings = append(p.warnings,
				fmt.Sprintf("The GPUs differ (%s, %s): what fits at once is planned for %s.",
					first.Name, g.Name, p.where()))
			return
		}
	}
}
