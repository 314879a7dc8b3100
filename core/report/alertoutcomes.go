package report

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/view"
)

// alerts are all of them in order, with what became of each; their times are of the run.
func (t *timeline) alerts() []view.Alert {
	found := []view.Alert{}
	for _, s := range t.sources {
		for _, a := range s.RunLog.Alerts {
			told := view.Alert{Alert: a, Where: t.label(s, a.GPU)}
			told.Outcome, told.AfterS = s.RunLog.Outcome(a)
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
