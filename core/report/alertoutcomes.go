package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

const (
	marginS = 2.0  // an alert and what cleared it are seen a second apart
	usedUp  = 0.01 // of the whole: what is left when something is used up
)

// hostWords are what the guard, PyTorch and Python say when the host's memory ran out.
var hostWords = []string{"(loading)", "DataLoader worker", "MemoryError"}

// alerts are all of them in order, with what became of each; their times are of the run.
func (t *timeline) alerts() []view.Alert {
	found := []view.Alert{}
	for _, s := range t.sources {
		for _, a := range s.RunLog.Alerts {
			told := view.Alert{Alert: a, Where: t.label(s, a.GPU)}
			told.Outcome, told.AfterS = s.outcome(a)
			told.AtS += s.offset
			for _, at := range []**float64{&told.SinceS, &told.ClearedS} {
				if *at != nil {
					*at = when(true, **at+s.offset)
				}
			}
			found = append(found, told)
		}
	}
	slices.SortStableFunc(found, func(a, b view.Alert) int { return cmp.Compare(a.AtS, b.AtS) })
	return found
}

// outcome is what became of an alert, and after how many seconds.
func (s *Source) outcome(a runlog.Alert) (what string, after *float64) {
	end, trueAt := *cmp.Or(a.ClearedS, &s.RunLog.DurationS), math.Inf(1)
	held := func(at float64) bool { return a.AtS <= at && at <= end+marginS }
	what = "cleared"
	for _, e := range s.RunLog.Events {
		switch {
		case !held(e.AtS):
		case e.Kind == runlog.EventOOM && sameMemory(e, a):
			trueAt = min(trueAt, e.AtS)
		case e.Kind == runlog.EventCleanUp:
			what = "averted"
		}
	}
	left, whole := s.left(a.Kind)
	for i, at := range left.times {
		if whole > 0 && held(at) && left.values[i] <= usedUp*whole {
			trueAt = min(trueAt, at)
			break
		}
	}
	switch {
	case !math.IsInf(trueAt, 1):
		return "came true", when(true, trueAt-a.AtS)
	case a.ClearedS == nil:
		return "held", nil
	}
	return what, when(true, end-a.AtS)
}

// sameMemory tells whether the memory that ran out is that of the alert. An event of no GPU may be any GPU's, or the host's.
func sameMemory(e runlog.Event, a runlog.Alert) bool {
	ofHost := e.GPU < 0 && slices.ContainsFunc(hostWords, func(words string) bool { return strings.Contains(e.Text, words) })
	if a.GPU < 0 {
		return ofHost
	}
	return e.GPU == a.GPU || e.GPU < 0 && !ofHost
}

// left is what an alert of the host is about that was left, and all of it.
func (s *Source) left(kind string) (left line, whole float64) {
	activity, host := &s.RunLog.Activity, &s.RunLog.Host
	switch kind {
	case runlog.AlertHostRAM, runlog.AlertWorkersRAM:
		return line{activity.TimesS, activity.HostAvailable}, float64(host.TotalBytes)
	case runlog.AlertShm:
		left.times, whole = activity.TimesS, float64(host.ShmTotalBytes)
		for _, used := range activity.ShmUsed {
			left.values = append(left.values, whole-used)
		}
	}
	return left, whole
}
