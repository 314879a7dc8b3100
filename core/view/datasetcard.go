package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	shownBad  = 50 // bad files in HTML
	listedBad = 5  // in text
)

var orders = map[string]string{"random": "random", "grouped": "grouped by length",
	"bucketed": "in 10 buckets", "sorted": "sorted"}

func dataset(d profile.Dataset) Document {
	h := durations(d, nil, nil)
	h.Note = paddingWords(d)
	blocks := []Block{allFacts(datasetFacts(d)...), h, padding(d), outliers(d)}
	for _, warning := range d.Warnings {
		headline, reason, _ := strings.Cut(warning, ". ")
		blocks = append(blocks, notice{Level: "warning", What: headline, Lines: advice(reason, "")})
	}
	var copies []string
	for _, group := range d.Duplicates.Groups {
		copies = append(copies, strings.Join(group, ", "))
	}
	return Document{Title: datasetLine(d), Brief: briefDataset(d), Blocks: append(blocks,
		fold{Summary: counted(d.Duplicates.Count, "likely copy", "likely copies"),
			Body: []Block{facts{Items: copies, Brief: listedBad}}}, badFiles(d))}
}

// briefDataset is how much there is, its lengths in a line, what padding costs, and what is wrong
// with it.
func briefDataset(d profile.Dataset) []Block {
	lines := append([]string{datasetLine(d)}, datasetFacts(d)...)
	if h := durations(d, nil, nil); len(h.Edges) > 0 {
		lines = append(lines, fmt.Sprintf("%s: %s %s %s %s %s", h.Title, short(h.Edges[0]), h.Unit,
			heights(h.Counts), short(h.Edges[len(h.Edges)-1]), h.Unit))
	}
	var wrong []string
	for _, warning := range d.Warnings {
		wrong = append(wrong, marks["warning"]+" "+warning)
	}
	for _, bad := range first(3, d.BadFiles) {
		wrong = append(wrong, fmt.Sprintf("%s %s: %s", marks["warning"], bad.Path, bad.Error))
	}
	return []Block{allFacts(append(lines, paddingWords(d))...), facts{Items: wrong, Brief: 7}}
}

// heights are counts as blocks of a height, the highest for the most; nothing for none.
func heights(counts []int) string {
	tallest := max(1, slices.Max(counts))
	drawn := make([]rune, len(counts))
	for i, n := range counts {
		drawn[i] = blocks[(n*(len(blocks)-1)+tallest-1)/tallest]
	}
	return string(drawn)
}

// datasetLine is "4300 clips, 9.81 h, 1.50–25.00 s, mean 8.22 s (folder clips)", with what cannot
// be used.
func datasetLine(d profile.Dataset) string {
	r, beside := d.RowKind, sampleOf(d)
	if d.BadCount > 0 {
		beside += ", " + count(d.BadCount, badNoun(d)) + " left out"
	}
	if d.MeasuredCount == 0 {
		return fmt.Sprintf("no usable %s (%s)%s", r.Noun(), d.Source, beside)
	}
	return fmt.Sprintf("%s, %s, %s–%s %s, mean %s %s (%s)%s", r.Count(d.SampleCount),
		r.Amount(d.TotalHours), r.Figure("%.2f", d.MinS), r.Figure("%.2f", d.MaxS), r.Unit(),
		r.Figure("%.2f", d.MeanS), r.Unit(), d.Source, beside)
}

func datasetFacts(d profile.Dataset) []string {
	if d.MeasuredCount == 0 {
		return nil
	}
	r, p := d.RowKind, d.PercentilesS
	lines := []string{fmt.Sprintf("median %s %s, 95 %% under %s %s", r.Figure("%.2f", p["p50"]),
		r.Unit(), r.Figure("%.2f", p["p95"]), r.Unit())}
	if !r.AreTexts() {
		lines[0] += fmt.Sprintf("; %s, %s decoded", d.Stored(), units.Size(d.DecodedBytes))
		lines = append(lines, fmt.Sprintf("%.1f%% over 30 s; sample rates %s; codecs %s",
			100*d.ShareOver30S, mix(d.SampleRates, " Hz"), mix(d.Codecs, "")))
	}
	return append(lines, certainty(d)...)
}

// sampleOf is ", measured on a sample of 200, from 10 shards of a stream"; nothing of all clips.
func sampleOf(d profile.Dataset) string {
	if !d.Sampled {
		return ""
	}
	sample := fmt.Sprintf(", measured on a sample of %d", d.MeasuredCount)
	if d.Sampling != nil && d.Sampling.Shards > 0 {
		sample += fmt.Sprintf(", from %s of a stream", count(d.Sampling.Shards, "shard"))
	}
	return sample
}

// certainty says how far the figures of a sample may be off; nothing where that is not known.
func certainty(d profile.Dataset) []string {
	s := d.Sampling
	if !d.Sampled || s == nil || s.MeanHighS == nil {
		return nil
	}
	return []string{fmt.Sprintf(
		"with 95 %% certainty: mean %s–%s %s, at most %.2g %% over %s %s",
		d.RowKind.Figure("%.2f", s.MeanLowS), d.RowKind.Figure("%.2f", *s.MeanHighS),
		d.RowKind.Unit(),
		100*s.LongerShare, d.RowKind.Figure("%.2f", d.MaxS), d.RowKind.Unit())}
}

// mix is "16000 Hz ×300, 8000 Hz ×4", the most frequent first.
func mix(counts map[string]int, unit string) string {
	names := sortedKeys(counts)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	for i, value := range names {
		names[i] = value + unit
		if len(counts) > 1 {
			names[i] += fmt.Sprintf(" ×%d", counts[value])
		}
	}
	if len(names) == 0 {
		return "unknown"
	}
	return units.Listed(names, ", ", 8)
}

// durations is the histogram of measured clips with the median, the 95th percentile, and what a
// plan adds: in seconds, of texts in tokens.
func durations(d profile.Dataset, marks []mark, ranges []clipRange) histogram {
	r, p := d.RowKind, d.PercentilesS
	if d.MeasuredCount <= 0 || len(d.Histogram.EdgesS) != len(d.Histogram.Counts)+1 {
		return histogram{}
	}
	say := func(seconds float64) string { return r.Figure("%.2f", seconds) + " " + r.Unit() }
	h := histogram{
		Kind: "histogram", Title: byLength(r), Unit: r.Unit(), Noun: r.Noun(),
		Edges: scaled(r, d.Histogram.EdgesS), Counts: d.Histogram.Counts,
		Marks: []mark{{At: p["p50"], Text: "median " + r.Figure("%.3g", p["p50"]) + " " + r.Unit()},
			{At: p["p95"], Text: "95 % under " + r.Figure("%.3g", p["p95"]) + " " + r.Unit()}},
		Words: fmt.Sprintf("%s from %s to %s, half of them under %s, 95 %% under %s",
			r.Count(d.MeasuredCount), r.Figure("%.2f", d.MinS), say(d.MaxS), say(p["p50"]),
			say(p["p95"])),
	}
	h.Marks = append(h.Marks, marks...)
	for i := range h.Marks {
		h.Marks[i].At = r.In(h.Marks[i].At)
	}
	for _, clips := range ranges {
		clips.UpTo = r.In(clips.UpTo)
		h.Ranges = append(h.Ranges, clips)
	}
	return h
}

// byLength is "clips by duration", "texts by length".
func byLength(r units.RowKind) string {
	return r.Nouns() + " by " + strings.TrimSuffix(r.Lengths(), "s")
}

// scaled are seconds in the unit of lengths.
func scaled(r units.RowKind, seconds []float64) []float64 {
	out := make([]float64, len(seconds))
	for i, s := range seconds {
		out[i] = r.In(s)
	}
	return out
}

// paddingWords is "padding in batches of 8: random 70.8%, …"; "" of a single clip.
func paddingWords(d profile.Dataset) string {
	var costs []string
	chart := padding(d)
	for _, r := range chart.Rows {
		costs = append(costs, r.Name+" "+r.Text)
	}
	if costs == nil {
		return ""
	}
	return chart.Title + ": " + strings.Join(costs, ", ")
}

func padding(d profile.Dataset) bars {
	b := bars{Kind: "bars", Title: fmt.Sprintf("padding in batches of %d", d.BatchSize), Unit: "%",
		Top: 1}
	for _, p := range d.Padding {
		if d.MeasuredCount > 1 {
			b.Rows = append(b.Rows, barRow{Name: cmp.Or(orders[p.Order], p.Order),
				Text: fmt.Sprintf("%.1f%%", 100*p.Waste), Parts: []segment{{Value: p.Waste}}})
		}
	}
	return b
}

// outliers are the few clips that cost most of the padding.
func outliers(d profile.Dataset) facts {
	o := d.Outliers
	if o == nil || d.MeasuredCount <= 1 {
		return facts{}
	}
	over := " over " + d.RowKind.Length(o.OverS)
	return allFacts(fmt.Sprintf("%s %.0f%% of the padded time", counted(o.Count,
		d.RowKind.Noun()+over+" holds", d.RowKind.Nouns()+over+" hold"), 100*o.PaddedShare))
}

// badNoun is "bad file", "bad text".
func badNoun(d profile.Dataset) string {
	if d.RowKind.AreTexts() {
		return "bad " + d.RowKind.Noun()
	}
	return "bad file"
}

func badFiles(d profile.Dataset) fold {
	var lines []string
	for _, bad := range first(shownBad, d.BadFiles) {
		lines = append(lines, fmt.Sprintf("%s: %s", bad.Path, bad.Error))
	}
	return fold{Summary: count(d.BadCount, badNoun(d)) + " left out",
		Body: []Block{facts{Items: lines, Brief: listedBad, More: d.BadCount - len(lines)}}}
}
