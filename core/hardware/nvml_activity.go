//go:build linux && cgo

package hardware

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// pcieEvery is how many readings pass between two looks at PCIe: the driver watches the bus for 20
// ms at each of the two calls. Between them the last rates stand.
const pcieEvery = 10

// gauges are the readings that a driver or a card may not have.
type gauge int

const (
	gaugeUtilization gauge = iota
	gaugePower
	gaugeTemperature
	gaugeClock
	gaugeThrottle
	gaugePCIe
	gaugeNVLink
	gaugeECC
	gaugeXID
	gaugeCounters
	gaugeCount
)

// gaugeWords name each in messages, and the largest value that is believed. Power is in watts, the
// others as a run log has them.
var gaugeWords = [gaugeCount]struct {
	name    string
	highest float64
}{
	{"utilisation", 1}, {"power", 10_000}, {"temperature", 200}, {"clock", 20_000},
	{"throttle reasons", math.MaxUint32},
	{"PCIe rates", 1e12}, {"NVLink rates", 1e14}, {"ECC errors", 1 << 53},
	{"XID errors", math.MaxUint32}, {"activity of multiprocessors", 1},
}

// watcher reads what one card does; a MIG slice has memory of its own, but the card's heat, power
// and clocks.
type watcher struct {
	card      nvml.Device
	available functions
	events    nvml.EventSet  // nil as long as none is open
	driver    nvml.Interface // makes queues of errors and samples of counters
	counters  counters       // none before the first reading
	now       func() time.Time

	off       [gaugeCount]bool // the card has none, or the driver: not asked
	readings  int
	pcie      traffic // rates
	pcieOK    bool
	nvlink    uint64 // bytes so far
	nvlinkAt  time.Time
	ecc       float64
	throttled int // bits of the reading before
	told      []runlog.Event
}

func newWatcher(card nvml.Device, available functions, driver nvml.Interface) *watcher {
	w := &watcher{card: card, available: available, driver: driver, now: time.Now, ecc: math.NaN()}
	w.off[gaugeCounters] = !available.counters
	return w
}

// facts are the power limit in watts and the highest clock in MHz, 0 where the driver does not
// report it.
func (w *watcher) facts() (powerLimit, maxClock float64) {
	if limit, result := w.card.GetEnforcedPowerLimit(); result == nvml.SUCCESS &&
		limit < 10_000_000 {
		powerLimit = float64(limit) / 1000
	}
	if clock, result := w.card.GetMaxClockInfo(nvml.CLOCK_SM); result == nvml.SUCCESS &&
		clock < 20_000 {
		maxClock = float64(clock)
	}
	return powerLimit, maxClock
}

// read takes everything but other processes' memory.
func (w *watcher) read() (runlog.GPUReading, []runlog.Event) {
	r := runlog.NoGPUReading()
	w.told = nil
	r.Utilization = w.ask(gaugeUtilization, func() (float64, nvml.Return) {
		utilization, result := w.card.GetUtilizationRates()
		if r.MemoryBusy = float64(utilization.Memory) / 100; result != nvml.SUCCESS ||
			utilization.Memory > 100 {
			r.MemoryBusy = math.NaN()
		}
		return float64(utilization.Gpu) / 100, result
	})
	r.PowerW = w.ask(gaugePower, func() (float64, nvml.Return) {
		return scaled(1e-3)(w.card.GetPowerUsage())
	})
	r.Temperature = w.ask(gaugeTemperature, func() (float64, nvml.Return) {
		return scaled(1)(w.card.GetTemperature(nvml.TEMPERATURE_GPU))
	})
	r.ClockMHz = w.ask(gaugeClock, func() (float64, nvml.Return) {
		return scaled(1)(w.card.GetClockInfo(nvml.CLOCK_SM))
	})
	r.Throttle = w.ask(gaugeThrottle, w.throttling)
	r.ECC = w.ask(gaugeECC, func() (float64, nvml.Return) {
		count, result := w.card.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED,
			nvml.VOLATILE_ECC)
		return float64(count), result
	})
	w.counted(&r)
	w.rates(&r)
	w.incidents(&r)
	w.readings++
	return r, w.told
}

// scaled turns the driver's whole numbers into the units of a reading.
func scaled(factor float64) func(uint32, nvml.Return) (float64, nvml.Return) {
	return func(value uint32, result nvml.Return) (float64, nvml.Return) {
		return float64(value) * factor, result
	}
}

// ask takes one reading. A card that has no such thing is not asked again; a driver that fails is.
func (w *watcher) ask(g gauge, read func() (float64, nvml.Return)) float64 {
	if w.off[g] {
		return math.NaN()
	}
	value, result := read()
	switch {
	case result == nvml.SUCCESS && value >= 0 && value <= gaugeWords[g].highest:
		return value
	case result == nvml.SUCCESS:
		w.tell(runlog.EventNonsense, "the driver reports impossible "+gaugeWords[g].name)
	case refusesFunction(result):
		w.off[g] = true
	}
	return math.NaN()
}

func (w *watcher) tell(kind, text string) {
	w.told = append(w.told, runlog.Event{Kind: kind, Text: text})
}

// throttleBits are NVML's reasons in the words of a run log. Idle clocks and a boost that waits for
// other cards are no trouble.
var throttleBits = map[uint64]int{
	nvml.ClocksEventReasonSwPowerCap:                runlog.ThrottlePower,
	nvml.ClocksEventReasonSwThermalSlowdown:         runlog.ThrottleHeat,
	nvml.ClocksThrottleReasonHwThermalSlowdown:      runlog.ThrottleHeat,
	nvml.ClocksThrottleReasonHwSlowdown:             runlog.ThrottleBrake,
	nvml.ClocksThrottleReasonHwPowerBrakeSlowdown:   runlog.ThrottleBrake,
	nvml.ClocksEventReasonApplicationsClocksSetting: runlog.ThrottleSetting,
}

func (w *watcher) throttling() (float64, nvml.Return) {
	read := w.card.GetCurrentClocksThrottleReasons
	if w.available.clockEvents {
		read = w.card.GetCurrentClocksEventReasons
	}
	reasons, result := read()
	bits := 0
	for reason, bit := range throttleBits {
		if reasons&reason != 0 {
			bits |= bit
		}
	}
	if bits&runlog.ThrottleHeat != 0 && reasons&nvml.ClocksThrottleReasonHwPowerBrakeSlowdown == 0 {
		bits &^= runlog.ThrottleBrake // the general bit is set along with the one that says why
	}
	began := bits &^ w.throttled
	w.throttled = bits
	if began&runlog.ThrottleHeat != 0 {
		w.tell(runlog.EventThrottled, "heat throttles the GPU")
	}
	if began&runlog.ThrottleBrake != 0 {
		w.tell(runlog.EventThrottled, "a power brake throttles the GPU")
	}
	return float64(bits), result
}

// rates are those of PCIe, and of NVLink from the second reading on.
func (w *watcher) rates(r *runlog.GPUReading) {
	if w.readings%pcieEvery == 0 {
		in := w.ask(gaugePCIe, func() (float64, nvml.Return) {
			return scaled(1000)(w.card.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES))
		})
		out := w.ask(gaugePCIe, func() (float64, nvml.Return) {
			return scaled(1000)(w.card.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES))
		})
		w.pcieOK = in >= 0 && out >= 0
		w.pcie = traffic{uint64(max(in, 0)), uint64(max(out, 0))}
	}
	if w.pcieOK {
		r.PCIeIn, r.PCIeOut = float64(w.pcie.in), float64(w.pcie.out)
	}
	r.NVLink = w.ask(gaugeNVLink, w.nvlinkRate)
}

// nvlinkRate is what all links sent and received since the reading before, in bytes per second. The
// driver counts KiB.
func (w *watcher) nvlinkRate() (float64, nvml.Return) {
	fields := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: math.MaxUint32},
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ScopeId: math.MaxUint32},
	}
	if result := w.card.GetFieldValues(fields); result != nvml.SUCCESS {
		return 0, result
	}
	var sum uint64
	for _, field := range fields {
		if result := nvml.Return(field.NvmlReturn); result != nvml.SUCCESS {
			return 0, result
		}
		sum += binary.NativeEndian.Uint64(field.Value[:]) << 10
	}
	readAt, before, since := w.now(), w.nvlink, w.nvlinkAt
	w.nvlink, w.nvlinkAt = sum, readAt
	if passed := readAt.Sub(since).Seconds(); !since.IsZero() && passed > 0 && sum >= before {
		return float64(sum-before) / passed, nvml.SUCCESS
	}
	return 0, nvml.ERROR_TIMEOUT // no rate yet, which is no failure either
}

// incidents are errors that the card reports: by the driver's queue, and by counters that rose.
func (w *watcher) incidents(r *runlog.GPUReading) {
	if r.ECC > w.ecc {
		w.tell(runlog.EventECC, fmt.Sprintf("%.0f uncorrected memory errors, %.0f more than before",
			r.ECC, r.ECC-w.ecc))
	}
	if !math.IsNaN(r.ECC) {
		w.ecc = r.ECC
	}
	if w.off[gaugeXID] || !w.listen() {
		return
	}
	const limit = 16 // of one reading
	for range limit {
		data, result := w.events.Wait(0)
		if result != nvml.SUCCESS {
			return
		}
		if data.EventType == nvml.EventTypeXidCriticalError {
			w.tell(runlog.EventXID, fmt.Sprintf("the driver reports Xid %d", data.EventData))
		}
	}
}

// listen opens the queue of the driver's errors at the first reading.
func (w *watcher) listen() bool {
	if w.events != nil {
		return true
	}
	set, result := w.driver.EventSetCreate()
	if result != nvml.SUCCESS {
		w.off[gaugeXID] = true
		return false
	}
	if w.card.RegisterEvents(nvml.EventTypeXidCriticalError, set) != nvml.SUCCESS {
		set.Free()
		w.off[gaugeXID] = true
		return false
	}
	w.events = set
	return true
}

// close returns the queue and the samples back; before the driver is.
func (w *watcher) close() {
	w.counters.free()
	if w.events != nil {
		w.events.Free()
		w.events = nil
	}
}
