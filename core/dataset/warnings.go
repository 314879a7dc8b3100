package dataset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// shortClipS is less than any word lasts: five frames of wav2vec2.
const shortClipS = 0.1

// warnings says what of the measured clips may go wrong in training. Silence is not judged: nothing
// is decoded.
func warnings(d *profile.Dataset, sorted []float64) []string {
	all := []string{}
	if d.RowKind.AreTexts() {
		return all // what follows is about audio
	}
	say := func(n int, format string, args ...any) {
		if n > 0 {
			all = append(all, fault.Plural(n, "clip")+" "+fmt.Sprintf(format, args...))
		}
	}
	short, _ := slices.BinarySearch(sorted, shortClipS)
	say(short, "under 0.1 s, too short for speech; CTC needs a frame (20 ms) for each label")
	say(len(sorted)-firstOver(sorted, longClipS),
		"over 30 s, which Whisper truncates; other models need more memory for them")
	rates, resampled := others(d.SampleRates, strconv.Itoa(decodedRate))
	say(resampled, "not at 16 kHz, to be resampled (%s)", mix(rates, " Hz"))
	_, mixed := others(d.Channels, "1")
	say(mixed, "not mono, to be mixed down")
	say(d.ShortenedCount, "with less audio than the header claims; the actual length is counted")
	say(d.Methods["estimated"], "of estimated length: their formats do not store it")
	say(d.Duplicates.Count, "very likely copied (%s): the size, the length and the bytes that were "+
		"read are those of another", d.RowKind.Amount(d.Duplicates.Hours))
	return all
}

// others are the counts of what is not called name, and their sum.
func others(counts map[string]int, name string) (rest map[string]int, n int) {
	rest = maps.Clone(counts)
	delete(rest, name)
	for _, count := range rest {
		n += count
	}
	return rest, n
}

// mix lists counts, the most frequent first.
func mix(counts map[string]int, unit string) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s%s ×%d", name, unit, counts[name])
	}
	return units.Listed(names, ", ", 4)
}

const (
	shownGroups  = 20
	shownMembers = 5
)

// duplicates finds usable clips that are very likely copies: the same digest, size and duration.
func duplicates(rows []row) profile.Duplicates {
	marks := make([]mark, 0, len(rows))
	for i := range rows {
		if rows[i].digest != 0 && rows[i].duration > 0 {
			marks = append(marks, mark{rows[i].digest, i})
		}
	}
	alike := func(a, b mark) int {
		x, y := &rows[a.row], &rows[b.row]
		return cmp.Or(cmp.Compare(a.digest, b.digest), cmp.Compare(x.size, y.size),
			cmp.Compare(x.duration, y.duration))
	}
	slices.SortFunc(marks, func(a, b mark) int {
		if a.digest != b.digest { // nearly always
			return cmp.Compare(a.digest, b.digest)
		}
		return cmp.Or(alike(a, b), cmp.Compare(a.row, b.row))
	})
	d := profile.Duplicates{Groups: [][]string{}}
	var groups [][]mark
	seconds := 0.0
	for from := 0; from < len(marks); {
		to := from + 1
		for to < len(marks) && alike(marks[from], marks[to]) == 0 {
			seconds += rows[marks[to].row].duration
			to++
		}
		if to > from+1 {
			d.Count += to - from - 1
			groups = append(groups, marks[from:to])
		}
		from = to
	}
	d.Hours = seconds / 3600
	slices.SortFunc(groups, func(a, b []mark) int { return cmp.Compare(a[0].row, b[0].row) })
	for _, group := range groups[:min(shownGroups, len(groups))] {
		var paths []string
		for _, m := range group[:min(shownMembers, len(group))] {
			paths = append(paths, fault.Printable(rows[m.row].path))
		}
		d.Groups = append(d.Groups, paths)
	}
	return d
}

type mark struct {
	digest uint64
	row    int
}
