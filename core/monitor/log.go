package monitor

import (
	"math"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"time"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// maxAlerts bounds how many alerts a run log has; the newest ones count.
const maxAlerts = 512

// properties is what does not change.
type properties struct {
	began time.Time // wall clock of time 0
	host  runlog.Host
	gpus  []runlog.GPU
}

func (m *Monitor) readProperties() properties {
	f := properties{began: m.clock.Wall().Add(-m.clock.Since()),
		gpus: make([]runlog.GPU, m.stats.GPUCount)}
	if m.watcher != nil {
		f.host = m.watcher.Properties()
	}
	f.host.Contained = m.host.last.LimitSource != ""
	if watcher, is := m.gpu.(GPUWatcher); is {
		for i := range f.gpus {
			f.gpus[i] = watcher.Properties(i)
		}
	}
	return f
}

// Log is everything seen so far.
func (m *Monitor) Log() runlog.Log {
	var stats Stats
	m.Read(&stats)
	s := runlog.Log{
		Version: runlog.Version, StartUnixNanos: m.properties.began.UnixNano(),
		IntervalS: m.interval.Seconds(), Samples: stats.Samples,
		Errors: stats.Errors, GPUs: append([]runlog.GPU{}, m.properties.gpus...),
		Host: m.properties.host, Activity: m.activitySeries(), Steps: m.steps.copy(),
		Events: m.events.copy(), Alerts: m.Alerts(),
	}
	s.Host.TotalBytes = stats.HostTotal
	for i := range s.GPUs {
		s.GPUs[i].TotalBytes = stats.GPU[i].Total
	}
	s.Alerts = s.Alerts[max(0, len(s.Alerts)-maxAlerts):]
	times, used, samples := m.history.copy(0)
	s.Memory = runlog.MemorySeries{TimesS: times, SamplesPoint: samples, HostUsed: used[0],
		GPUUsed: used[1:]}
	m.history.lock.Lock()
	defer m.history.lock.Unlock()
	s.DurationS = m.history.newest
	return s
}

// Alerts are all so far, oldest first.
func (m *Monitor) Alerts() []runlog.Alert {
	if m.forecast == nil {
		return []runlog.Alert{}
	}
	return append([]runlog.Alert{}, m.forecast.Alerts()...)
}

const (
	// collectEvery is how many slow readings pass between two collections. A reading leaves 50 KiB
	// behind, and the runtime would wait for 4 MiB of it.
	collectEvery = 8
	// smallHeap bounds what is collected so often, in bytes; the time of a collection grows with
	// what is in use.
	smallHeap = 16 << 20
)

// saveMemory occasionally frees what readings left behind, while the heap is small. Pages of the
// library's file that only starting needed are left to the kernel: giving them back lowers the
// resident memory that is shown, not the machine's.
func (m *Monitor) saveMemory() {
	m.readings++
	if m.readings%collectEvery != 0 {
		return
	}
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	if metrics.Read(heap); heap[0].Value.Kind() == metrics.KindUint64 &&
		heap[0].Value.Uint64() < smallHeap {
		runtime.GC()
	}
}

const (
	maxEvents    = 512
	maxEventText = 400 // bytes
	// quiet is for how long the same event is not written again, in seconds: a card that comes and
	// goes fills no run log.
	quiet = 60
)

// eventLog keeps what happened, in at most maxEvents entries. When it is full, the kind with the
// most entries loses one of them: a flood of one kind does not wash away the others.
type eventLog struct {
	lock   sync.Mutex
	events []runlog.Event
}

// add writes an event down unless the same was written a moment ago; what cannot be read, or cannot
// be true, is said once for each thing.
func (l *eventLog) add(e runlog.Event) {
	e.Text = strings.ToValidUTF8(e.Text[:min(len(e.Text), maxEventText)], "")
	l.lock.Lock()
	defer l.lock.Unlock()
	period := float64(quiet)
	if e.Kind == runlog.EventUnread || e.Kind == runlog.EventNonsense {
		period = math.Inf(1)
	}
	for i := len(l.events) - 1; i >= 0 && e.AtS-l.events[i].AtS < period; i-- {
		if old := l.events[i]; old.Kind == e.Kind && old.GPU == e.GPU && old.Text == e.Text {
			return
		}
	}
	if len(l.events) == maxEvents {
		l.drop()
	}
	l.events = append(l.events, e)
}

// drop takes the second entry of the most frequent kind away: the first one says when it began.
func (l *eventLog) drop() {
	counts := map[string]int{}
	frequent := l.events[0].Kind
	for _, e := range l.events {
		if counts[e.Kind]++; counts[e.Kind] > counts[frequent] {
			frequent = e.Kind
		}
	}
	count := 0
	for i, e := range l.events {
		if e.Kind == frequent {
			if count++; count == min(2, counts[frequent]) {
				l.events = append(l.events[:i], l.events[i+1:]...)
				return
			}
		}
	}
}

func (l *eventLog) copy() []runlog.Event {
	l.lock.Lock()
	defer l.lock.Unlock()
	return append([]runlog.Event{}, l.events...)
}
