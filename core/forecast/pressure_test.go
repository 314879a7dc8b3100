package forecast

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

var usual = Limits{WarnAt: 0.90, Hysteresis: 0.05, CleanAt: 0.95, CooldownS: 60}

// used is a GPU of 10 GiB with so many GiB in use.
func used(gib float64) []Use {
	return []Use{{GPU: 0, Headroom: (10 - gib) * units.GiB, Total: 10 * units.GiB}}
}

func TestFullMemoryIsWarnedOfOncePerCrossing(t *testing.T) {
	w := New(1)
	var raised, ended []float64
	for i, gib := range []float64{5, 8.9, 9.0, 9.3, 8.6, 9.1, 9.4, 8.4, 9.3, 8.4, 9.3} {
		atS := 100 * float64(i)
		for _, a := range w.Check(atS, 0.3, used(gib), usual).Changed {
			if assert.Equal(t, runlog.AlertFull, a.Kind); a.ClearedS != nil {
				ended = append(ended, gib)
			} else {
				raised = append(raised, gib)
				assert.Contains(t, a.Text, "GiB (9", a.Text)
			}
		}
	}
	assert.Equal(t, []float64{9.0, 9.3}, raised, "not again within two minutes")
	assert.Equal(t, []float64{8.4}, ended)
	assert.Empty(t, w.Check(2000, 0.3, used(9.3), usual).Changed)
	assert.Empty(t, New(1).Check(0, 0.3, used(9.9), Limits{}).Changed, "nothing was asked for")
}

func TestOneAlertOfAFullGPU(t *testing.T) {
	tight := func(_ int, s *runlog.Step) { s.DriverFree, s.PeakAllocated = 0.1*gb, 9.2*gb }
	w := run(64, tight)
	assert.Equal(t, runlog.AlertFull, only(t, w).Kind)
	w.Check(200, 1, used(9.5), usual)
	d := w.Check(201, 1, used(5), usual)
	assert.Nil(t, only(t, w).ClearedS, "peaks leave little, whatever lies between them")
	assert.EqualValues(t, 1, d.Warnings)
}

func TestTheHostIsWarnedOfWhereThereIsNoGPU(t *testing.T) {
	w := New(0)
	use := []Use{{GPU: -1, Headroom: 4 * units.GiB, Total: 100 * units.GiB}}
	d := w.Check(1, 1, use, usual)
	assert.True(t, d.CleanUp)
	assert.Equal(t, "host 96.0 of 100.0 GiB (96%) is over 90%", d.Changed[0].Text)
	use[0].Headroom = 50 * units.GiB
	assert.NotNil(t, w.Check(2, 1, use, usual).Changed[0].ClearedS)
}

func TestCleanUpsThatDoNotHelpBecomeRare(t *testing.T) {
	w := New(1)
	now := 0.0
	wait := func(gib float64) (seconds float64) {
		for began := now; ; now++ {
			if w.Check(now, 0.3, used(gib), usual).CleanUp {
				return now - began
			}
		}
	}
	assert.Zero(t, wait(9.6))
	now++
	assert.Contains(t, w.Check(now, 0.3, used(8.1), usual).CleanUpTexts[0],
		"the clean-up brought 1.5 GiB back: GPU 0 8.1 of 10.0 GiB (81%)")
	assert.Equal(t, 59.0, wait(9.6), "one that helped is followed after the cooldown")
	var waits []float64
	for range 8 {
		now++
		d := w.Check(now, 0.3, used(9.58), usual)
		assert.Contains(t, d.CleanUpTexts[0], "did not help")
		assert.False(t, d.CleanUp)
		waits = append(waits, 1+wait(9.6))
	}
	assert.Equal(t, []float64{120, 240, 480, 960, 1920, 3600, 3600, 3600}, waits)
	now++
	d := w.Check(now, 0.3, []Use{{GPU: -1, Headroom: 1, Total: 2}}, usual)
	assert.Equal(t, "the gain of the clean-up is unknown", d.CleanUpTexts[0])
	assert.Equal(t, 10, d.CleanUps)
}

func TestEveryChangeIsReportedOnce(t *testing.T) {
	w := New(1)
	told := func(edit func()) (texts []string) {
		edit()
		for _, a := range w.Check(0, 1, nil, usual).Changed {
			state := a.Severity
			if a.ClearedS != nil {
				state = cleared
			}
			texts = append(texts, state+" "+a.Kind)
		}
		return texts
	}
	leak := runlog.Alert{Kind: runlog.AlertLeak, GPU: 0}
	critical := leak
	critical.Steps = pointer(3)
	raise := func(a runlog.Alert) func() { return func() { w.alerts.raise(500, a) } }
	clear := func() { w.alerts.clear(501, runlog.AlertLeak, 0) }
	assert.Equal(t, []string{"warn leak"}, told(raise(leak)))
	assert.Empty(t, told(raise(leak)))
	assert.Equal(t, []string{"critical leak"}, told(raise(critical)))
	assert.Equal(t, []string{"cleared leak"}, told(clear))
	assert.Equal(t, []string{"critical leak", "cleared leak"},
		told(func() { w.alerts.raise(502, critical); clear() }), "between two looks")
}
