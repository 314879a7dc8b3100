package hardware

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// CUDA numbers the GPUs of a machine in the order of the PCI bus with CUDA_DEVICE_ORDER=PCI_BUS_ID, which is NVML's. By default
// (FASTEST_FIRST) it puts the fastest first, by a rule that NVIDIA does not publish: the same order where all are alike, and
// not known from outside where they differ. A process in which CUDA runs can ask it; identifiers in CUDA_VISIBLE_DEVICES count
// the same in every order.
const pciOrder = "PCI_BUS_ID"

// inCUDAOrder is the boards that CUDA itself has listed, in its order; nil where it was not asked, or has listed others.
func (s *session) inCUDAOrder(uuids []string) (units []unit) {
	for _, uuid := range uuids {
		i := slices.IndexFunc(s.boards, func(b board) bool { return b.uuid == uuid && b.err == nil && !b.migMode })
		if uuid == "" || i < 0 || slices.ContainsFunc(units, func(u unit) bool { return u.uuid == uuid }) {
			return nil
		}
		units = append(units, s.boards[i].unit)
	}
	return units
}

// orderNote says that indices may select other GPUs than those in units, "" where they do not.
func (s *session) orderNote(options Options, units []unit) string {
	setting := options.VisibleDevices
	if setting == nil || len(units) == 0 || len(units) == len(s.boards) || options.DeviceOrder == pciOrder ||
		parseVisible(*setting).indices == nil || s.inCUDAOrder(options.CUDAOrder) != nil || s.alike() {
		return ""
	}
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s may select other GPUs than those planned for (%s): without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA numbers unlike GPUs "+
		"fastest first, by a rule that is not published. Set it before Python starts, or name GPUs by UUID (nvidia-smi -L).", fault.Shorten(*setting), strings.Join(names, ", "))
}

// alike tells whether every order of the boards is the same to a plan.
func (s *session) alike() bool {
	return !slices.ContainsFunc(s.boards, func(b board) bool { return b.name != s.boards[0].name || b.migMode != s.boards[0].migMode })
}
