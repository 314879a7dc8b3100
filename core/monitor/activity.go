package monitor

import (
	"math"
	"slices"
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
	return &activity{at: math.NaN(), host: runlog.NoHostReading(), gpusAt: -stale,
		gpus: unknownGPUs(gpus)}
}

func unknownGPUs(count int) []runlog.GPUReading {
	return slices.Repeat([]runlog.GPUReading{runlog.NoGPUReading()}, count)
}

// sampleGPUs reads what every GPU does.
func (m *Monitor) sampleGPUs(watcher GPUWatcher) {
	for i := range m.gpuCount {
		reading, events := watcher.Activity(i)
		for _, e := range events {
			m.record(e.Kind, i, e.Text)
		}
		m.activity.lock.Lock()
		m.activity.gpus[i], m.activity.gpusAt = reading, m.clock.Since()
		m.activity.lock.Unlock()
	}
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
			m.record(e.Kind, -1, e.Text)
		}
	}
	var stats Stats
	m.Read(&stats)
	if stats.HostTotal > 0 {
		host.HostAvailable = float64(stats.HostTotal - stats.HostUsed)
	}
	atS := m.now()
	gpus := m.keep(atS, host)
	values := host.Values(nil)
	for i := range gpus {
		values = gpus[i].Values(values)
	}
	m.seconds.add(atS, values)
	if m.forecast != nil {
		m.forecast.Second(runlog.Second{HostReading: host, AtS: atS,
			HostTotal: known(stats.HostTotal), ShmTotal: known(m.properties.host.ShmTotalBytes),
			CPU: cpu, GPUs: gpuSeconds(&stats, gpus)})
	}
}

// keep makes a reading the newest one and gives a copy of the GPUs' that belong to it.
func (m *Monitor) keep(atS float64, host runlog.HostReading) []runlog.GPUReading {
	a := m.activity
	a.lock.Lock()
	defer a.lock.Unlock()
	a.at, a.host = atS, host
	if m.clock.Since()-a.gpusAt > max(stale, 3*m.interval) {
		return unknownGPUs(len(a.gpus))
	}
	return slices.Clone(a.gpus)
}

func gpuSeconds(stats *Stats, gpus []runlog.GPUReading) []runlog.GPUSecond {
	seconds := make([]runlog.GPUSecond, len(gpus))
	for i, reading := range gpus {
		seconds[i] = runlog.GPUSecond{Total: math.NaN(), Used: math.NaN(), Free: math.NaN(),
			Others: reading.Others}
		if g := &stats.GPU[i]; g.Valid {
			seconds[i].Total, seconds[i].Used, seconds[i].Free =
				float64(g.Total), float64(g.Used), float64(g.Free)
		}
	}
	return seconds
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

// The columns of a row in the order of runlog.HostReading and runlog.GPUReading.
var (
	hostMergings = []merging{mean, mean, mean, lowest, highest, highest, highest, highest, mean,
		mean, mean, mean}
	gpuMergings = []merging{mean, mean, mean, mean, mean, highest, mean, bits, mean, mean, mean,
		highest, highest}
)

// mergings are those of a row with so many GPUs.
func mergings(gpus int) []merging {
	return append(slices.Clone(hostMergings), slices.Repeat(gpuMergings, gpus)...)
}

// activitySeries are the columns of the slow series as a run log has them.
func (m *Monitor) activitySeries() runlog.ActivitySeries {
	times, columns, _ := m.seconds.copy(0)
	out := runlog.ActivitySeries{TimesS: times, GPUs: make([]runlog.GPUSeries, m.gpuCount)}
	into := out.Columns()
	for i := range out.GPUs {
		into = append(into, out.GPUs[i].Columns()...)
	}
	for i, column := range into {
		*column = columns[i]
	}
	return out
}
