package view

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// alternatives are the plan and the other ways, each epoch with a meter.
func (r planRecord) alternatives() []Block {
	c := r.Config
	if len(c.Alternatives) == 0 {
		return nil
	}
	longest := 0.0
	for _, a := range c.Alternatives {
		if a.EpochHours != nil {
			longest = max(longest, a.EpochHours.Likely)
		}
	}
	var own *profile.Range
	if c.Times != nil {
		own = &c.Times.EpochHours
		longest = max(longest, own.Likely)
	}
	yes, peak := true, c.PredictedBytes
	t := table{Head: []string{"option", "what", "fits", "peak", "an epoch", "against the plan"}}
	mine := alternativeRow(profile.Alternative{Name: "this plan", What: r.short(), Fits: &yes,
		PeakBytes: &peak, EpochHours: own}, longest)
	mine.Class = "mine"
	t.Rows = append(t.Rows, mine)
	var faster []string
	for _, a := range c.Alternatives {
		t.Rows = append(t.Rows, alternativeRow(a, longest))
		if a.Speed != nil && a.Why != "" && againstPlan(*a.Speed) != "as fast" {
			faster = append(faster, fmt.Sprintf("· %s: %s, but %s", name(a.Name),
				againstPlan(*a.Speed), a.Why))
		}
	}
	body := []Block{t}
	if len(faster) > 0 {
		body = append(body, allFacts(faster...))
	}
	return []Block{section{Title: "Alternatives", Body: body}}
}

func alternativeRow(a profile.Alternative, longest float64) row {
	fits := cell{Text: "?", Class: "tight"}
	if a.Fits != nil {
		fits = fitting(*a.Fits)
	}
	epoch := cell{Text: known(a.EpochHours, hours), Class: "tight"}
	if a.EpochHours != nil && longest > 0 {
		epoch.Meter = a.EpochHours.Likely / longest
	}
	against := cell{Text: unknown, Class: "tight"}
	switch {
	case a.Name == "this plan":
		against.Text = ""
	case a.Speed != nil:
		against.Text = againstPlan(*a.Speed)
	}
	peak := known(a.PeakBytes, func(bytes int64) string { return units.InGiB(bytes) })
	return row{Cells: []cell{{Text: name(a.Name)}, {Text: a.What}, fits,
		{Text: peak, Class: "tight"}, epoch, against}}
}

// againstPlan is "42 % slower", "as fast" or "11 % faster", by the rows of an hour.
func againstPlan(speed float64) string {
	gain := 100 * (1/speed - 1)
	switch {
	case gain <= -0.5:
		return fmt.Sprintf("%.0f %% slower", -gain)
	case gain < 0.5:
		return "as fast"
	}
	return fmt.Sprintf("%.0f %% faster", gain)
}

// fitting tells by a sign, too, not by a colour alone.
func fitting(fits bool) cell {
	if fits {
		return cell{Text: "✓ yes", Class: "tight yes"}
	}
	return cell{Text: "✗ no", Class: "tight no"}
}

// short is "8 × 4, fp16, checkpointing": the plan beside its alternatives.
func (r planRecord) short() string {
	c := r.Config
	parts := []string{fmt.Sprintf("%d × %d", c.PerDeviceTrainBatchSize,
		c.GradientAccumulationSteps), c.Precision()}
	if c.GradientCheckpointing {
		parts = append(parts, c.Checkpointing().Name())
	}
	if c.MicroBatching == "memory" {
		parts = append(parts, "sized by memory")
	}
	return strings.Join(append(parts, c.LengthHandling+" order"), ", ")
}
