package view

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
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
		fits, words := "", "unknown"
		if b.MicroBatch != nil {
			fits = fmt.Sprintf("%d", *b.MicroBatch)
			words = fits
		}
		ranges = append(ranges, clipRange{b.UpToS, fits,
			fmt.Sprintf("%s–%s: %s, micro-batch %s", rows.Figure("%.4g", low), rows.Length(b.UpToS),
				rows.Count(b.Clips), words)})
		low = b.UpToS
	}
	return ranges
}

func (r planRecord) buckets() fold {
	kind, low := r.Config.RowKind, 0.0
	rows := [][]string{{kind.Lengths(), kind.Nouns(), "micro-batch"}}
	for _, b := range r.Config.LengthBuckets {
		fits := known(b.MicroBatch, func(n int) string { return fmt.Sprintf("%d", n) })
		rows = append(rows, []string{fmt.Sprintf("%s–%s %s", kind.Figure("%.3g", low),
			kind.Figure("%.3g", b.UpToS), kind.Unit()), fmt.Sprintf("%d", b.Clips), fits})
		low = b.UpToS
	}
	if len(rows) == 1 {
		return fold{}
	}
	return fold{Summary: count(len(rows)-1, "length bucket"), Body: []Block{plain(rows)}}
}
