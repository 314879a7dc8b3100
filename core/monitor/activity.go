package monitor

import (
	"math"
	"sync"
	"time"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// activity is the newest slow reading. GPUs are read by a goroutine of their own, so that a driver
// that hangs does not stop the readings of the host.
type activity struct {
	lock   sync.Mutex
	at     float64 // of the host's reading; NaN before the first
	host   runlog.HostReading
	gpusAt time.Duration
	gpus   []runlog.GPUReading
}

// stale is for how long a GPU's reading stands for the present.
const stale = 3 * time.Second

func newActivity(gpus int) *activity {
	a := &activity{at: math.NaN(), host: runlog.NoHostReading(), gpusAt: -stale,
		gpus: make([]runlog.GPUReading, gpus)}
	for i := range a.gpus {
		a.gpus[i] = runlog.NoGPUReading()
	}
	return a
}

// sampleGPUs reads what every GPU does.
func (m *Monitor) sampleGPUs(watcher GPUWatcher) {
	for i := range m.history.gpus() {
		reading, events := watcher.Activity(i)
		for _, e := range events {
			m.recordOnce(e.Kind, i, e.Text)
		}
		m.activity.lock.Lock()
		m.activity.gpus[i], m.activity.gpusAt = reading, m.clock.Since()
		m.activity.lock.Unlock()
	}
}

// recordOnce writes down what is said once for each thing; the driver's own errors are told
// whenever they come.
func (m *Monitor) recordOnce(kind string, gpu int, text string) {
	e := runlog.Event{AtS: m.now(), Kind: kind, GPU: gpu, Text: text}
	if kind == runlog.EventUnread || kind == runlog.EventNonsense {
		m.events.once(e)
		return
	}
	m.events.add(e)
}

// second reads what the host does, adds a row with what the GPUs did last, and lets the forecasts
// hear of it.
func (m *Monitor) second() {
	host := runlog.NoHostReading()
	cpu := runlog.CPUUse{Cores: math.NaN(), Others: math.NaN(), Waiting: math.NaN()}
	if m.watcher != nil {
		var events []runlog.Event
		host, events = m.watcher.Activity()
		cpu = m.watcher.CPUUse()
		for _, e := range events {
			m.recordOnce(e.Kind, -1, e.Text)
		}
	}
	var stats Stats
	m.Read(&stats)
	if stats.HostTotal > 0 {
		host.HostAvailable = float64(stats.HostTotal - stats.HostUsed)
	}
	atS := m.now()
	gpus := m.keep(atS, host)
	m.activityTable.add(atS, &host, gpus)
	if m.forecast != nil {
		second := m.forecastInput(atS, &stats, &host, gpus)
		second.CPU = cpu
		m.forecast.Second(second)
	}
}

// keep makes a reading the newest one and gives a copy of the GPUs' that belong to it.
func (m *Monitor) keep(atS float64, host runlog.HostReading) []runlog.GPUReading {
	a := m.activity
	a.lock.Lock()
	defer a.lock.Unlock()
	a.at, a.host = atS, host
	gpus := append([]runlog.GPUReading{}, a.gpus...)
	if m.clock.Since()-a.gpusAt > max(stale, 3*m.interval) {
		for i := range gpus {
			gpus[i] = runlog.NoGPUReading()
		}
	}
	return gpus
}

func (m *Monitor) forecastInput(atS float64, stats *Stats, host *runlog.HostReading,
	gpus []runlog.GPUReading) runlog.Second {
	s := runlog.Second{
		AtS: atS, HostTotal: known(stats.HostTotal), HostAvailable: host.HostAvailable,
		SwapUsed: host.SwapUsed, TreeRSS: host.TreeRSS,
		WorkersRSS: host.WorkersRSS, ShmTotal: known(m.properties.host.ShmTotalBytes),
		ShmUsed: host.ShmUsed,
		GPUs:    make([]runlog.GPUSecond, len(gpus)),
	}
	for i := range gpus {
		s.GPUs[i] = runlog.GPUSecond{Total: math.NaN(), Used: math.NaN(), Free: math.NaN(),
			Others: gpus[i].Others}
		if g := &stats.GPU[i]; g.Valid {
			s.GPUs[i].Total, s.GPUs[i].Used, s.GPUs[i].Free =
				float64(g.Total), float64(g.Used), float64(g.Free)
		}
	}
	return s
}

// known is a size of which 0 says that it is not known.
func known(bytes uint64) float64 {
	if bytes == 0 {
		return math.NaN()
	}
	return float64(bytes)
}

// Activity is the newest slow reading and its time in seconds from the start; NaN before the first.
func (m *Monitor) Activity() (atS float64, host runlog.HostReading, gpus []runlog.GPUReading) {
	m.activity.lock.Lock()
	defer m.activity.lock.Unlock()
	return m.activity.at, m.activity.host, append([]runlog.GPUReading{}, m.activity.gpus...)
}

// maxRows is the fixed length of the slow series, which is thinned as the fast one is: 4096 seconds
// are an hour and eight minutes, a week has rows of four minutes.
const maxRows = 4096

// merging tells how two values of one column become one. NaN is no value: the other one stands.
type merging int

const (
	mean merging = iota
	highest
	lowest
	bits
)

// The columns of a row in the order of runlog.HostReading and runlog.GPUReading.
var (
	hostMergings = []merging{mean, mean, mean, lowest, highest, highest, highest, highest, mean,
		mean, mean, mean}
	gpuMergings = []merging{mean, mean, mean, mean, mean, highest, mean, bits, mean, mean, mean,
		highest, highest}
)

// merge joins a, which stands for n readings, and b, which stands for m.
func (rule merging) merge(a, b float32, n, m int) float32 {
	switch {
	case a != a: // NaN
		return b
	case b != b:
		return a
	case rule == highest:
		return max(a, b)
	case rule == lowest:
		return min(a, b)
	case rule == bits:
		return float32(uint32(a) | uint32(b))
	}
	return (a*float32(n) + b*float32(m)) / float32(n+m)
}

// activityTable is the slow series: a table of fixed size. Numbers of 24 bits are exact to 4 KiB in
// 64 GiB and take half the memory.
type activityTable struct {
	lock  sync.Mutex
	times []float64
	// row by row, the host's and then each GPU's: a page of memory is touched when the one before
	// is full
	cells  []float32
	rules  []merging // of each column
	perRow int       // readings that a full row covers
	inLast int
	values []float64 // of the reading that is being added
}

func newActivityTable(gpus int) *activityTable {
	r := &activityTable{rules: append([]merging{}, hostMergings...), perRow: 1,
		times: make([]float64, 0, maxRows)}
	for range gpus {
		r.rules = append(r.rules, gpuMergings...)
	}
	r.cells = make([]float32, 0, maxRows*len(r.rules))
	return r
}

func (r *activityTable) add(atS float64, host *runlog.HostReading, gpus []runlog.GPUReading) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.values = host.Values(r.values[:0])
	for i := range gpus {
		r.values = gpus[i].Values(r.values)
	}
	if r.inLast == r.perRow && len(r.times) == maxRows {
		r.halve()
	}
	if r.inLast == r.perRow || len(r.times) == 0 {
		r.append(atS)
	}
	last := r.row(len(r.times) - 1)
	for i, rule := range r.rules {
		last[i] = rule.merge(last[i], float32(r.values[i]), r.inLast, 1)
	}
	r.inLast++
}

func (r *activityTable) append(atS float64) {
	r.times = append(r.times, atS)
	for range r.rules {
		r.cells = append(r.cells, float32(math.NaN()))
	}
	r.inLast = 0
}

func (r *activityTable) row(k int) []float32 { return r.cells[k*len(r.rules) : (k+1)*len(r.rules)] }

// halve merges every two neighbours of a full table.
func (r *activityTable) halve() {
	for k := range maxRows / 2 {
		r.times[k] = r.times[2*k]
		to, a, b := r.row(k), r.row(2*k), r.row(2*k+1)
		for i, rule := range r.rules {
			to[i] = rule.merge(a[i], b[i], 1, 1)
		}
	}
	r.times, r.cells = r.times[:maxRows/2], r.cells[:maxRows/2*len(r.rules)]
	r.perRow *= 2
	r.inLast = r.perRow
}

// copy returns the rows as a run log has them.
func (r *activityTable) copy(gpus int) runlog.ActivitySeries {
	r.lock.Lock()
	defer r.lock.Unlock()
	out := runlog.ActivitySeries{TimesS: append([]float64{}, r.times...),
		GPUs: make([]runlog.GPUSeries, gpus)}
	into := out.Columns()
	for i := range out.GPUs {
		into = append(into, out.GPUs[i].Columns()...)
	}
	for i, column := range into {
		*column = make(runlog.Column, len(r.times))
		for k := range *column {
			(*column)[k] = float64(r.row(k)[i])
		}
	}
	return out
}
