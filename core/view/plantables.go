package view

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/compare"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// data is the audio with what the plan does to it: length buckets, limits.
func (r planRecord) data() section {
	s, buckets := section{Title: "Data"}, r.buckets()
	if d := r.Dataset; d != nil {
		limits := limitsOf(r.Config)
		lines := append([]string{datasetLine(*d)}, datasetFacts(*d)...)
		if d.MeasuredCount > 0 {
			lines = append(lines, percentiles(*d))
		}
		for _, l := range limits {
			if d.MeasuredCount == 0 || l.At > d.MaxS {
				lines = append(lines, l.Text)
			}
		}
		s.Body = []Block{durations(*d, limits, r.ranges()), allFacts(lines...), buckets,
			badFiles(*d)}
		if len(buckets.Body) > 0 && d.MeasuredCount > 0 {
			s.Note = "micro-batch of each length above the bars"
		}
		return s
	}
	s.Body = []Block{buckets}
	return s
}

func percentiles(d profile.Dataset) string {
	var parts []string
	for _, p := range []string{"5", "25", "75", "90", "99"} {
		parts = append(parts, fmt.Sprintf("%s %% %s", p,
			d.RowKind.Figure("%.3g", d.PercentilesS["p"+p])))
	}
	if d.RowKind.AreTexts() {
		return "percentiles in tokens: " + strings.Join(parts, ", ")
	}
	return "percentiles in seconds: " + strings.Join(parts, ", ")
}

// limitsOf are where clips are left out or cut.
func limitsOf(c profile.Config) []mark {
	limit := func(seconds float64) string {
		return c.RowKind.Figure("%.6g", seconds) + " " + c.RowKind.Unit()
	}
	var marks []mark
	if s := c.MaxLengthS; s != nil {
		marks = append(marks, mark{At: *s, Text: fmt.Sprintf("longer than %s: left out", limit(*s)),
			Limit: true, Cuts: true})
	}
	if s := c.ChunkLengthS; s != nil {
		marks = append(marks, mark{At: *s, Text: fmt.Sprintf("longer than %s: cut", limit(*s)),
			Limit: true})
	}
	return marks
}

func (r planRecord) ranges() []clipRange {
	var ranges []clipRange
	rows, low := r.Config.RowKind, 0.0
	for _, b := range r.Config.LengthBuckets {
		fits := ""
		if b.MicroBatch != nil {
			fits = strconv.Itoa(*b.MicroBatch)
		}
		ranges = append(ranges, clipRange{b.UpToS, fits,
			fmt.Sprintf("%s–%s: %s, micro-batch %s", rows.Figure("%.4g", low), rows.Length(b.UpToS),
				rows.Count(b.Clips), cmp.Or(fits, "unknown"))})
		low = b.UpToS
	}
	return ranges
}

func (r planRecord) buckets() fold {
	kind, low := r.Config.RowKind, 0.0
	rows := [][]string{{kind.Lengths(), kind.Nouns(), "micro-batch"}}
	for _, b := range r.Config.LengthBuckets {
		rows = append(rows, []string{fmt.Sprintf("%s–%s %s", kind.Figure("%.3g", low),
			kind.Figure("%.3g", b.UpToS), kind.Unit()), strconv.Itoa(b.Clips),
			known(b.MicroBatch, strconv.Itoa)})
		low = b.UpToS
	}
	if len(rows) == 1 {
		return fold{}
	}
	return fold{Summary: count(len(rows)-1, "length bucket"), Body: []Block{plain(rows)}}
}

func (r planRecord) alternatives() section {
	c := r.Config
	if len(c.Alternatives) == 0 {
		return section{}
	}
	yes, faster := true, []string(nil)
	mine := profile.Alternative{Name: "this plan", What: r.short(), Fits: &yes,
		PeakBytes: &c.PredictedBytes}
	if c.Times != nil {
		mine.EpochHours = &c.Times.EpochHours
	}
	all, longest := append([]profile.Alternative{mine}, c.Alternatives...), 0.0
	for _, a := range all {
		if a.EpochHours != nil {
			longest = max(longest, a.EpochHours.Likely)
		}
	}
	t := table{Head: []string{"option", "what", "fits", "peak", "an epoch", "against the plan"}}
	for _, a := range all {
		t.Rows = append(t.Rows, alternativeRow(a, longest))
		if a.Speed != nil && a.Why != "" && againstPlan(*a.Speed) != "as fast" {
			faster = append(faster, fmt.Sprintf("· %s: %s, but %s", name(a.Name),
				againstPlan(*a.Speed), a.Why))
		}
	}
	t.Rows[0].Class, t.Rows[0].Cells[5].Text = "mine", ""
	return section{Title: "Alternatives", Body: []Block{t, allFacts(faster...)}}
}

func alternativeRow(a profile.Alternative, longest float64) row {
	cells := cellsOf(name(a.Name), a.What, "?", known(a.PeakBytes, units.InGiB[int64]),
		known(a.EpochHours, hours), known(a.Speed, againstPlan))
	if a.Fits != nil {
		cells[2] = fitting(*a.Fits)
	}
	if a.EpochHours != nil && longest > 0 {
		cells[4].Meter = a.EpochHours.Likely / longest
	}
	return row{Cells: cells}
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
		return cell{Text: "✓ yes", Class: "yes"}
	}
	return cell{Text: "✗ no", Class: "no"}
}

// short is "8 × 4, fp16, checkpointing": the plan beside its alternatives.
func (r planRecord) short() string {
	c, sized := r.Config, ""
	if c.MicroBatching == "memory" {
		sized = "sized by memory"
	}
	return joined(shortSettings(compare.Settings{Batch: c.PerDeviceTrainBatchSize,
		Accumulation: c.GradientAccumulationSteps, Precision: c.Precision(),
		Checkpointing: c.GradientCheckpointing, EveryNLayers: c.EveryNLayers,
		Offload: c.OffloadCheckpoints}), sized, c.LengthHandling+" order")
}

// shortSettings is "8 × 4, bf16, checkpointing, 8-bit".
func shortSettings(s compare.Settings) string {
	checkpointing, bits := "", ""
	if s.Checkpointing {
		checkpointing = profile.CheckpointingOf(true, s.EveryNLayers, s.Offload).Name()
	}
	if strings.Contains(s.Optimizer, "8bit") {
		bits = "8-bit"
	}
	return joined(fmt.Sprintf("%d × %d", s.Batch, s.Accumulation), s.Precision, checkpointing, bits)
}
