package monitor

import (
	"math"
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
	f := properties{began: m.clock.Wall().Add(-m.clock.Since()), gpus: make([]runlog.GPU, m.stats.GPUCount)}
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
	var now Stats
	m.Read(&now)
	s := runlog.Log{
		Version: runlog.Version, StartUnixNanos: m.properties.began.UnixNano(), IntervalS: m.interval.Seconds(), Samples: now.Samples,
		Errors: now.Errors, GPUs: append([]runlog.GPU{}, m.properties.gpus...), Host: m.properties.host, Memory: m.memory(),
		Activity: m.activityTable.copy(now.GPUCount), Steps: m.steps.copy(), Events: m.events.copy(), Alerts: m.Alerts(),
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
func (m *Monitor) Alerts() []runlog.Alert {
	if m.forecast == nil {
		return []runlog.Alert{}
	}
	return append([]runlog.Alert{}, m.forecast.Alerts()...)
}

// memory is the fast series as a run log has it.
func (m *Monitor) memory() runlog.MemorySeries {
	times, columns, samples := m.copyHistory(0)
	out := runlog.MemorySeries{TimesS: times, SamplesPoint: samples, HostUsed: column(columns[0]), GPUUsed: []runlog.Column{}}
	for _, used := range columns[1:] {
		out.GPUUsed = append(out.GPUUsed, column(used))
	}
	return out
}

func column(bytes []uint64) runlog.Column {
	out := make(runlog.Column, len(bytes))
	for i, value := range bytes {
		out[i] = float64(value)
		if value == absent {
			out[i] = math.NaN()
		}
	}
	return out
}
