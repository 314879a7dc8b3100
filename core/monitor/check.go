package monitor

import (
	"fmt"
	"time"

	"github.com/asrconfig/asrconfig-go/core/forecast"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const (
	clockFrom   = 30 * time.Minute // further off, the time of day says more
	severityLog = "info"           // of what no longer holds
	// a clean-up's gain is seen some samples later
	settleSamples, leastSettleS = 3, 0.25
)

// Message is what a training is to be told.
type Message struct {
	Severity string `json:"severity"` // "critical", "warn" or "info"
	Text     string `json:"text"`
}

// Check is what follows from how full memory is, and from the forecasts.
type Check struct {
	Fullest  *forecast.Use `json:"fullest"`   // null where nothing could be read
	CleanUp  bool          `json:"clean_up"`  // garbage and PyTorch's cache are to be freed now
	Messages []Message     `json:"messages"`  // those that are new since the check before
	Warnings uint64        `json:"warnings"`  // alerts since the start
	CleanUps int           `json:"clean_ups"` // since the start
}

// Check compares the use of memory with the limits and returns what is new since the check before.
func (m *Monitor) Check(l forecast.Limits) Check {
	if m.forecast == nil {
		return Check{Messages: []Message{}}
	}
	settle := max(leastSettleS, settleSamples*m.interval.Seconds())
	d := m.forecast.Check(m.now(), settle, m.uses(), l)
	c := Check{d.Fullest, d.CleanUp, []Message{}, d.Warnings, d.CleanUps}
	for _, a := range d.Changed {
		c.Messages = append(c.Messages, worded(a, m.clock.Wall()))
	}
	for _, text := range d.CleanUpTexts {
		m.Record(runlog.EventCleanUp, d.Fullest.GPU, text)
		c.Messages = append(c.Messages, Message{runlog.SeverityWarn, text})
	}
	return c
}

// uses are the GPUs that PyTorch uses in this process, as another process's cache cannot be told
// apart from used memory; without such ones all GPUs, and without those the host.
func (m *Monitor) uses() []forecast.Use {
	var stats Stats
	m.Read(&stats)
	var all, own []forecast.Use
	for i := range stats.GPUCount {
		g := &stats.GPU[i]
		if !g.Valid || g.Total == 0 {
			continue
		}
		use := forecast.Use{GPU: i, Headroom: float64(g.Headroom), Total: float64(g.Total)}
		if all = append(all, use); g.TorchValid {
			own = append(own, use)
		}
	}
	switch {
	case own != nil:
		return own
	case all == nil && stats.HostTotal > 0:
		return []forecast.Use{{GPU: -1, Headroom: float64(stats.HostTotal - stats.HostUsed),
			Total: float64(stats.HostTotal)}}
	}
	return all
}

// worded is an alert with its advice, and with the time of day where it speaks of hours.
func worded(a runlog.Alert, now time.Time) Message {
	if a.ClearedS != nil {
		return Message{severityLog, "no longer: " + a.Text}
	}
	text := a.Text
	if a.Seconds != nil && *a.Seconds >= clockFrom.Seconds() {
		then, layout := now.Add(time.Duration(*a.Seconds*1e9)), "15:04"
		if then.YearDay() != now.YearDay() || then.Year() != now.Year() {
			layout = "15:04 on Mon 02 Jan"
		}
		text += fmt.Sprintf(" (at about %s)", then.Format(layout))
	}
	return Message{a.Severity, text + " → " + a.Advice}
}
