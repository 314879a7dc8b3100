// Package report says what became of a run: its figures, alerts and charts, and its series for other programs. It is pure.
package report

import "github.com/asrconfig/asrconfig-go/core/runlog"

// Source is what one monitor of a run saw.
type Source struct {
	Name   string     `json:"name"` // "" is the first, else what its file's name adds
	RunLog runlog.Log `json:"run_log"`

	offset float64 // seconds from the run's start to that of the run log
}

// placed checks the run logs and places them on one timeline, which begins with the earliest. Errors: Corrupt.
func placed(sources []Source) (start int64, err error) {
	for i := range sources {
		log := &sources[i].RunLog
		if err := log.Check(); err != nil {
			return 0, err
		}
		if i == 0 || log.StartUnixNanos < start {
			start = log.StartUnixNanos
		}
	}
	for i := range sources {
		sources[i].offset = float64(uint64(sources[i].RunLog.StartUnixNanos)-uint64(start)) / 1e9
	}
	return start, nil
}
