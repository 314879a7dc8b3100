package monitor

import (
	"math"
	"time"

	"github.com/asrconfig/asrconfig-go/core/story"
)

// maxAlerts bounds how many alerts a story has; the newest ones count.
const maxAlerts = 512

// facts is what does not change.
type facts struct {
	began time.Time // wall clock of time 0
	host  story.Host
	gpus  []story.GPU
}

func (m *Monitor) findFacts() facts {
	f := facts{began: m.clock.Wall().Add(-m.clock.Since()), gpus: make([]story.GPU, m.stats.GPUCount)}
	if m.watcher != nil {
		f.host = m.watcher.Facts()
	}
	f.host.Contained = m.host.last.LimitSource != ""
	if watcher, is := m.gpu.(GPUWatcher); is {
		for i := range f.gpus {
			f.gpus[i] = watcher.Facts(i)
		}
	}
	return f
}

// Story is everything seen so far.
func (m *Monitor) Story() story.Story {
	var now Stats
	m.Read(&now)
	s := story.Story{
		Version: story.Version, StartUnixNanos: m.facts.began.UnixNano(), IntervalS: m.interval.Seconds(), Samples: now.Samples,
		Errors: now.Errors, GPUs: append([]story.GPU{}, m.facts.gpus...), Host: m.facts.host, Memory: m.memory(),
		Activity: m.rows.copy(now.GPUCount), Steps: m.marks.copy(), Events: m.events.copy(), Alerts: m.Alerts(),
	}
	s.Host.TotalBytes = now.HostTotal
	for i := range s.GPUs {
		s.GPUs[i].TotalBytes = now.GPU[i].Total
	}
	s.Alerts = s.Alerts[max(0, len(s.Alerts)-maxAlerts):]
	m.historyLock.Lock()
	defer m.historyLock.Unlock()
	s.DurationS = m.history.newest
	return s
}

// Alerts are all so far, oldest first.
func (m *Monitor) Alerts() []story.Alert {
	if m.forecast == nil {
		return []story.Alert{}
	}
	return append([]story.Alert{}, m.forecast.Alerts()...)
}

// memory is the fast series as a story has it.
func (m *Monitor) memory() story.Memory {
	times, columns, samples := m.copyHistory(0)
	out := story.Memory{TimesS: times, SamplesPoint: samples, HostUsed: column(columns[0]), GPUUsed: []story.Column{}}
	for _, used := range columns[1:] {
		out.GPUUsed = append(out.GPUUsed, column(used))
	}
	return out
}

func column(bytes []uint64) story.Column {
	out := make(story.Column, len(bytes))
	for i, value := range bytes {
		out[i] = float64(value)
		if value == absent {
			out[i] = math.NaN()
		}
	}
	return out
}
