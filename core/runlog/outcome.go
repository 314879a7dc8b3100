package runlog

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

const (
	outcomeMarginS = 2.0  // an alert and what cleared it are seen a second apart
	usedUp         = 0.01 // of the whole: what is left when something is used up
)

// Outcomes of an alert.
const (
	OutcomeTrue    = "came true" // memory ran out, or what was warned of was used up
	OutcomeAverted = "averted"   // cleared by a clean-up
	OutcomeCleared = "cleared"
	OutcomeHeld    = "held" // until the end
)

// hostWords are what the guard, PyTorch and Python say when the host's memory ran out.
var hostWords = []string{"(loading)", "DataLoader worker", "MemoryError"}

// Outcome is what became of an alert of the log, and after how many seconds.
func (s *Log) Outcome(a Alert) (what string, after *float64) {
	end, trueAt := *cmp.Or(a.ClearedS, &s.DurationS), math.Inf(1)
	held := func(at float64) bool { return a.AtS <= at && at <= end+outcomeMarginS }
	what = OutcomeCleared
	for _, e := range s.Events {
		switch {
		case !held(e.AtS):
		case e.ranOutOf(a):
			trueAt = min(trueAt, e.AtS)
		case e.Kind == EventCleanUp:
			what = OutcomeAverted
		}
	}
	times, left, whole := s.left(a.Kind)
	for i, at := range times[:min(len(times), len(left))] {
		if whole > 0 && held(at) && left[i] <= usedUp*whole {
			trueAt = min(trueAt, at)
			break
		}
	}
	switch {
	case !math.IsInf(trueAt, 1):
		trueAt -= a.AtS
		return OutcomeTrue, &trueAt
	case a.ClearedS == nil:
		return OutcomeHeld, nil
	}
	end -= a.AtS
	return what, &end
}

// ranOutOf tells whether the memory that ran out is that of the alert. An event of no GPU may be any GPU's, or the host's.
func (e Event) ranOutOf(a Alert) bool {
	ofHost := e.GPU < 0 && slices.ContainsFunc(hostWords, func(words string) bool { return strings.Contains(e.Text, words) })
	switch {
	case e.Kind != EventOOM:
		return false
	case a.GPU < 0:
		return ofHost
	}
	return e.GPU == a.GPU || e.GPU < 0 && !ofHost
}

// left is what an alert of the host is about that was left, and all of it.
func (s *Log) left(kind string) (times []float64, left Column, whole float64) {
	activity := &s.Activity
	switch kind {
	case AlertHostRAM, AlertWorkersRAM:
		return activity.TimesS, activity.HostAvailable, float64(s.Host.TotalBytes)
	case AlertShm:
		whole = float64(s.Host.ShmTotalBytes)
		for _, used := range activity.ShmUsed {
			left = append(left, whole-used)
		}
	}
	return activity.TimesS, left, whole
}
