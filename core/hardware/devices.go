package hardware

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// Devices keeps the driver open for repeated memory readings. Its methods may be called from any
// goroutine.
type Devices struct {
	// readings share it, Close takes it alone: no reading runs against a closed driver
	lock   sync.RWMutex
	units  []unit         // the visible ones in CUDA order
	finish func()         // nil once closed
	others otherProcesses // memory of other processes
}

// OpenDevices opens the driver and the visible GPUs. Without a usable driver or GPU it gives
// NotFound with the reason.
func OpenDevices(options Options) (*Devices, error) {
	session, err := connect(options.LibraryPath)
	if err != nil {
		return nil, err
	}
	units, reason := session.visible(options)
	if len(units) == 0 {
		session.close()
		return nil, fault.New(fault.NotFound, "watch host memory only, or make a GPU visible",
			"no GPU to watch: %s", reason)
	}
	others := newOtherProcesses(options.Root, len(units))
	if options.PID > 0 {
		others.top = options.PID
	}
	return &Devices{units: units, finish: session.close, others: others}, nil
}

// Count is the number of visible GPUs, at least 1. It stays the same after Close.
func (d *Devices) Count() int { return len(d.units) }

// Memory reads GPU i, in bytes; it costs some microseconds. total can exceed used+free by what the
// driver keeps for itself. A driver that fails later gives NotFound with its reason.
func (d *Devices) Memory(i int) (used, total, free uint64, err error) {
	d.lock.RLock()
	defer d.lock.RUnlock()
	if d.finish == nil {
		return 0, 0, 0, fault.New(fault.NotFound, "open the devices again",
			"cannot read GPU %d: the devices were closed", i)
	}
	memory, err := d.units[i].memory()
	if err != nil {
		return 0, 0, 0, err
	}
	return memory.used, memory.total, memory.free, nil
}

// Properties is what does not change about GPU i; sizes are left to Memory.
func (d *Devices) Properties(i int) runlog.GPU {
	d.lock.RLock()
	defer d.lock.RUnlock()
	if d.finish == nil {
		return runlog.GPU{}
	}
	u := &d.units[i]
	facts := runlog.GPU{Name: u.name, UUID: u.uuid, MIG: u.mig}
	if u.watch != nil {
		facts.PowerLimitW, facts.MaxClockMHz = u.watch.facts()
	}
	return facts
}

// Activity reads what GPU i does, and what the driver has to tell of; a reading of PCIe holds the
// caller for 40 ms. One goroutine uses it. Nothing is known of a closed driver.
func (d *Devices) Activity(i int) (runlog.GPUReading, []runlog.Event) {
	d.lock.RLock()
	defer d.lock.RUnlock()
	if d.finish == nil || d.units[i].watch == nil {
		return runlog.NoGPUReading(), nil
	}
	reading, events := d.units[i].watch.read()
	reading.Others = d.others.of(i, &d.units[i])
	return reading, events
}

// Close returns the driver back. Closing twice does no harm.
func (d *Devices) Close() {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.finish != nil {
		for _, u := range d.units {
			if u.watch != nil {
				u.watch.close()
			}
		}
		d.finish()
		d.finish = nil
	}
}

// CUDA numbers the GPUs of a machine in the order of the PCI bus with CUDA_DEVICE_ORDER=PCI_BUS_ID,
// which is NVML's. By default (FASTEST_FIRST) it puts the fastest first, by a rule that NVIDIA does
// not publish: the same order where all are alike, and not known from outside where they differ. A
// process in which CUDA runs can ask it; identifiers in CUDA_VISIBLE_DEVICES count the same in
// every order.
const pciOrder = "PCI_BUS_ID"

// inCUDAOrder is the boards that CUDA itself has listed, in its order; nil where it was not asked,
// or has listed others.
func (s *session) inCUDAOrder(uuids []string) (units []unit) {
	for _, uuid := range uuids {
		i := slices.IndexFunc(s.boards, func(b board) bool {
			return b.uuid == uuid && b.err == nil && !b.migMode
		})
		if uuid == "" || i < 0 || slices.ContainsFunc(units, func(u unit) bool {
			return u.uuid == uuid
		}) {
			return nil
		}
		units = append(units, s.boards[i].unit)
	}
	return units
}

// orderNote says that indices may select other GPUs than those in units, "" where they do not.
func (s *session) orderNote(options Options, units []unit) string {
	setting := options.VisibleDevices
	if setting == nil || len(units) == 0 || len(units) == len(s.boards) ||
		options.DeviceOrder == pciOrder ||
		parseVisible(*setting).indices == nil || s.inCUDAOrder(options.CUDAOrder) != nil ||
		s.alike() {
		return ""
	}
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s may select other GPUs than those planned for "+
		"(%s): without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA numbers unlike GPUs "+
		"fastest first, by a rule that is not published. Set it before Python starts, or name "+
		"GPUs by UUID (nvidia-smi -L).", fault.Shorten(*setting), strings.Join(names, ", "))
}

// alike reports whether every order of the boards is the same to a plan.
func (s *session) alike() bool {
	return !slices.ContainsFunc(s.boards, func(b board) bool {
		return b.name != s.boards[0].name || b.migMode != s.boards[0].migMode
	})
}

// How CUDA reads CUDA_VISIBLE_DEVICES, after the CUDA programming guide and PyTorch's reader of it
// (torch/cuda/__init__.py, which was fitted to the driver's behaviour):
//
//   - entries are separated by commas; the first entry decides whether they are indices, "GPU-" or
//     "MIG-" identifiers;
//   - an index is what strtoul makes of the text, so "1abc" is 1; an identifier may be cut short
//     while it stays unique;
//   - the list ends at the first entry that is negative, of another kind, unknown or ambiguous;
//   - a repeated entry hides everything.
//
// MIG (NVIDIA's MIG user guide, "CUDA device enumeration"): a process sees one MIG device at most,
// the first selected, and no whole GPU beside it.
//
// Indices count in NVML's order, which may not be CUDA's where GPUs differ (orderNote).

// selection is CUDA_VISIBLE_DEVICES taken apart: indices, or prefixes of identifiers.
type selection struct {
	indices []int
	boards  []string // prefixes of board UUIDs, "GPU-8d…"
	migs    []string // prefixes of MIG UUIDs, "MIG-5f…" or, before R470, "MIG-GPU-8d…/7/0"
}

// parseVisible reads the variable. Anything unreadable ends the list; it never fails.
func parseVisible(setting string) selection {
	identifiers := func(kind string) []string {
		return entries(setting, func(entry string) (string, bool) {
			return entry, strings.HasPrefix(entry, kind)
		})
	}
	switch {
	case strings.HasPrefix(setting, "GPU-"):
		return selection{boards: identifiers("GPU-")}
	case strings.HasPrefix(setting, "MIG-"):
		return selection{migs: identifiers("MIG-")}
	default:
		return selection{indices: entries(setting, leadingNumber)}
	}
}

// entries are those before the first that read refuses; none where one is repeated.
func entries[T comparable](setting string, read func(string) (T, bool)) []T {
	var list []T
	for text := range strings.SplitSeq(setting, ",") {
		entry, ok := read(text)
		if !ok || len(list) == maxBoards {
			break
		}
		if slices.Contains(list, entry) {
			return nil
		}
		list = append(list, entry)
	}
	return list
}

// leadingNumber is strtoul for what matters here: an optional sign and decimal digits, the rest
// ignored. Negative, absent and overflowing numbers are not ok.
func leadingNumber(text string) (int, bool) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "+")
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	number, err := strconv.ParseUint(text[:digits], 10, 31)
	return int(number), err == nil
}

// selectUnits returns what CUDA would enumerate, in its order. trouble is the first error of a
// selected board that cannot be used; such a board is left out.
func selectUnits(boards []board, setting *string) (units []unit, trouble string) {
	chosen := boards
	if setting != nil {
		choice := parseVisible(*setting)
		if choice.migs != nil {
			return selectMIG(boards, choice.migs), ""
		}
		chosen = selectBoards(boards, choice)
	}
	for _, b := range chosen {
		switch {
		case b.err != nil:
			trouble = cmp.Or(trouble, b.err.Error())
		case b.migMode:
			units = append(units, b.slices...)
		default:
			units = append(units, b.unit)
		}
	}
	return oneMIG(units), trouble
}

func selectBoards(boards []board, choice selection) []board {
	var picked []int
	for _, index := range choice.indices {
		if index >= len(boards) {
			break
		}
		picked = append(picked, index)
	}
	for _, prefix := range choice.boards {
		index := uniquePrefix(len(boards), prefix, func(i int) string { return boards[i].uuid })
		if index < 0 {
			break
		}
		if slices.Contains(picked, index) { // two prefixes of one GPU are a repetition too
			return nil
		}
		picked = append(picked, index)
	}
	chosen := make([]board, len(picked))
	for i, index := range picked {
		chosen[i] = boards[index]
	}
	return chosen
}

// selectMIG resolves the first identifier only: CUDA shows one MIG device, and an unknown one ends
// the list.
func selectMIG(boards []board, prefixes []string) []unit {
	var all []unit
	for _, b := range boards {
		all = append(all, b.slices...)
	}
	index := uniquePrefix(len(all), prefixes[0], func(i int) string { return all[i].uuid })
	if index < 0 {
		return nil
	}
	return all[index : index+1]
}

// uniquePrefix is the place of the one identifier that starts with prefix; -1 when none or several
// do.
func uniquePrefix(count int, prefix string, identifier func(int) string) int {
	match := -1
	for i := range count {
		if !strings.HasPrefix(identifier(i), prefix) {
			continue
		}
		if match >= 0 {
			return -1
		}
		match = i
	}
	return match
}

// oneMIG applies the rule that a MIG device is enumerated alone.
func oneMIG(units []unit) []unit {
	if i := slices.IndexFunc(units, func(u unit) bool { return u.mig }); i >= 0 {
		return units[i : i+1]
	}
	return units
}
