package plan

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Published limits of the dataset rules.
const (
	largeBytes, largeHours = 50e9, 100.0 // streaming above
	smallBytes, smallHours = 10e9, 10.0  // caching below; also the size up to which two workers do
	longClipS              = 30.0        // chunking above
)

// streaming: a dataset of more than 50 GB on disk, or more than 100 h.
func streaming(d profile.Dataset) (on bool, reason string) {
	size := datasetSize(d)
	if d.RowKind.AreTexts() {
		return false, size + ": texts take little room"
	}
	if float64(d.SizeBytes) > largeBytes || d.TotalHours > largeHours {
		return true, size + ": more than " + threshold(largeBytes) + " or more than 100 h"
	}
	return false, size + ": at most " + threshold(largeBytes) + " and at most 100 h"
}

// threshold is a published limit as it was published, and in the unit of the other sizes: "50 GB
// (46.57 GiB)".
func threshold(bytes float64) string {
	return fmt.Sprintf("%.0f GB (%s)", bytes/1e9, units.Size(bytes))
}

func datasetSize(d profile.Dataset) string {
	amount := d.RowKind.Amount(d.TotalHours)
	if d.RowKind.AreTexts() {
		return amount
	}
	return d.Stored() + ", " + amount
}

// streamingWarning: a streamed dataset has no length, and the Trainer then wants max_steps.
func streamingWarning(on bool, d profile.Dataset, effective int, epochs float64) string {
	if !on {
		return ""
	}
	samples := d.SampleCount
	if d.Sampling != nil && d.Sampling.Population == nil {
		return fmt.Sprintf("A streamed dataset has no length, so the Trainer needs max_steps: "+
			"config.max_steps(clips), for as many %s as the stream has. "+
			"The plan's times are of an epoch of the %s that were measured.", d.RowKind.Nouns(),
			d.RowKind.Count(samples))
	}
	steps := max(1, float64(samples)*epochs/float64(effective))
	return fmt.Sprintf("A streamed dataset has no length, so the Trainer needs max_steps: about "+
		"%.0f for %s epochs (%s × %s / %d).",
		steps, number(epochs), d.RowKind.Count(samples), number(epochs), effective)
}

// caching: a dataset under 10 GB on disk, or under 10 h, that is not streamed and whose decoded
// audio fits into the RAM left over. Every loader worker is a process of its own and may come to
// hold all of it.
func caching(d profile.Dataset, streamed bool, workers int,
	available float64) (on bool, reason string) {
	size := datasetSize(d)
	if streamed {
		return false, "the dataset is streamed"
	}
	if d.RowKind.AreTexts() {
		return false, "texts need no decoding"
	}
	if float64(d.SizeBytes) >= smallBytes && d.TotalHours >= smallHours {
		return false, size + ": not under " + threshold(smallBytes) + " and not under 10 h"
	}
	copies := max(1, workers)
	needed := float64(d.DecodedBytes) * float64(copies)
	ram := fmt.Sprintf("%s decoded × %d = %s", units.Size(d.DecodedBytes), copies,
		units.Size(needed))
	if needed > available {
		return false, fmt.Sprintf("%s: small, but %s exceeds the %s of RAM left", size, ram,
			units.Size(available))
	}
	return true, fmt.Sprintf("%s: under %s or under 10 h, and %s fits into the %s of RAM left",
		size, threshold(smallBytes), ram, units.Size(available))
}

func chunkLength(d profile.Dataset) (length *float64, reason string) {
	if d.RowKind.AreTexts() {
		return nil, "texts are not cut"
	}
	if d.ShareOver30S == 0 && d.MaxS <= longClipS {
		return nil, fmt.Sprintf("the longest clip has %.1f s ≤ 30 s", d.MaxS)
	}
	chunk := longClipS
	return &chunk, fmt.Sprintf("%.1f %% of the clips exceed 30 s, the longest %.1f s",
		100*d.ShareOver30S, d.MaxS)
}

func chunkWarning(length *float64) string {
	if length == nil {
		return ""
	}
	return fmt.Sprintf("Clips over %.4g s must be split: config.select(dataset) cuts them with "+
		"their texts, by timestamps or by align=; max_length_s leaves them out.", *length)
}

// lengthWarning warns when the longest clip is at least twice the mean one: the published formula
// knows only the mean.
func lengthWarning(d profile.Dataset, chunk *float64) string {
	longest := max(d.MaxS, d.MeanS)
	if chunk != nil {
		longest = min(longest, *chunk)
	}
	if longest < 2*d.MeanS {
		return ""
	}
	return fmt.Sprintf("The published formula plans for the mean %s (%s %s); a batch with the "+
		"longest (%s %s) needs more memory than predicted.",
		d.RowKind.Noun(), d.RowKind.Figure("%.1f", d.MeanS), d.RowKind.Unit(),
		d.RowKind.Figure("%.1f", longest), d.RowKind.Unit())
}

// fewClipsWarning warns when an epoch has no whole optimizer step.
func fewClipsWarning(rows units.RowKind, samples, effective int) string {
	if samples >= effective {
		return ""
	}
	return fmt.Sprintf("The dataset has %s, fewer than the effective batch of %d: every epoch is "+
		"one step. Lower target_batch_size.",
		rows.Count(samples), effective)
}
