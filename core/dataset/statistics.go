package dataset

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	longClipS   = 30    // speech models cut or drop longer clips
	decodedRate = 16000 // Hz, what speech models take
)

var percents = []int{1, 5, 10, 25, 50, 75, 90, 95, 99}

// maxBadFiles is how many bad files a profile lists; a folder of a million text files named .wav
// shall not fill a notebook.
const maxBadFiles = 10_000

// Summarize sums up clips; bad ones are listed, the others counted. source names what was read.
// With a sample, the counts and totals are scaled to its population, by the share of drawn clips
// that are usable; nil says that these are all.
func Summarize(c *Clips, source string, sample *Subsample, o Options) profile.Dataset {
	d := profile.Dataset{
		RowKind:  cmp.Or(o.RowKind, units.Clips),
		BadFiles: []profile.BadFile{}, PercentilesS: map[string]float64{},
		SampleRates: map[string]int{}, Channels: map[string]int{},
		Codecs: map[string]int{}, Methods: map[string]int{}, BatchSize: o.BatchSize, Source: source,
		Histogram: profile.Histogram{EdgesS: []float64{}, Counts: []int{}},
	}
	if d.BatchSize == 0 {
		d.BatchSize = defaultBatch
	}
	durations, size := collect(&d, c)
	d.MeasuredCount = len(durations)
	scale := 1.0
	if sample != nil {
		d.Sampled, d.Sampling = true, sampling(c.rows, sample)
		scale = float64(sample.Population) / float64(max(1, sample.Drawn))
	}
	d.SampleCount = int(math.Round(float64(d.MeasuredCount) * scale))
	seconds := spread(&d, durations) * scale
	d.TotalHours = seconds / 3600
	d.SizeBytes = whole(size * scale)
	d.DecodedBytes = whole(o.RowKind.Bytes(seconds))
	d.Padding = paddings(durations, d.BatchSize, o.Seed)
	d.Outliers = outliers(durations, d.BatchSize)
	d.Duplicates = duplicates(c.rows)
	d.Warnings = warnings(&d, durations)
	return d
}

// collect counts the usable clips by kind, lists the others, and gives the durations and the bytes
// of the usable ones.
func collect(d *profile.Dataset, c *Clips) (durations []float64, size float64) {
	durations = make([]float64, 0, len(c.rows))
	counts := make([]int, max(1, len(c.kinds.list)))
	for i := range c.rows {
		r := &c.rows[i]
		if r.duration <= 0 {
			d.BadCount++
			if len(d.BadFiles) < maxBadFiles {
				d.BadFiles = append(d.BadFiles,
					profile.BadFile{Path: fault.Printable(r.path), Error: r.err()})
			}
			continue
		}
		durations = append(durations, r.duration)
		size += float64(r.size)
		counts[r.kind]++
		if r.claimed() > r.duration {
			d.ShortenedCount++
		}
	}
	for number, n := range counts {
		if n > 0 {
			tally(d, c.kinds.at(uint32(number)), n)
		}
	}
	return durations, size
}

// tally counts n clips of a kind. What a manifest does not tell of clips that cannot be opened is
// left out.
func tally(d *profile.Dataset, k Kind, n int) {
	if k.SampleRate > 0 {
		d.SampleRates[strconv.Itoa(k.SampleRate)] += n
	}
	if k.Channels > 0 {
		d.Channels[strconv.Itoa(k.Channels)] += n
	}
	if k.Codec != "" {
		d.Codecs[k.Codec] += n
	}
	if k.Method != "" {
		d.Methods[k.Method] += n
	}
}

// spread fills in the statistics of the durations, which it sorts, and gives their sum. Without
// any, all stays zero.
func spread(d *profile.Dataset, durations []float64) (sum float64) {
	n := len(durations)
	if n == 0 {
		return 0
	}
	slices.Sort(durations)
	for _, s := range durations {
		sum += s
	}
	d.MeanS, d.MinS, d.MaxS = sum/float64(n), durations[0], durations[n-1]
	squares := 0.0
	for _, s := range durations {
		squares += (s - d.MeanS) * (s - d.MeanS)
	}
	d.StdS = math.Sqrt(squares / float64(n))
	for _, p := range percents {
		d.PercentilesS["p"+strconv.Itoa(p)] = percentile(durations, float64(p))
	}
	over := n - firstOver(durations, longClipS)
	d.ShareOver30S = float64(over) / float64(n)
	d.Histogram = histogram(durations)
	return sum
}

// firstOver is the index of the first value above limit.
func firstOver(sorted []float64, limit float64) int {
	i, _ := slices.BinarySearch(sorted, math.Nextafter(limit, math.Inf(1)))
	return i
}

// percentile interpolates linearly between the two nearest of the sorted values, bit for bit as
// numpy.percentile does.
func percentile(sorted []float64, percent float64) float64 {
	position := percent / 100 * float64(len(sorted)-1)
	i := int(math.Floor(position))
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	a, b, t := sorted[i], sorted[i+1], position-math.Floor(position)
	if t >= 0.5 {
		return b - (b-a)*(1-t)
	}
	return a + (b-a)*t
}

// whole rounds a scaled total. Float64 carries 2^53 bytes exactly, 9 PB.
func whole(x float64) int64 {
	if x >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Round(x))
}

// certainty is the share of draws in which an interval holds what it is of.
const certainty = 0.95

// students are the factors of an interval's half width by the degrees of freedom, from one on, and
// normal is that of many (tables of Student's t distribution, two-sided 95 %).
var students = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}

const normal = 1.96

// sampling tells how far what was measured may be off. shards are how many rows were read of each
// shard of a stream, one after the other: clips of a shard may be alike, so then shards are what
// was drawn, and their totals tell the error of the mean (the ratio estimator of cluster sampling:
// Cochran, Sampling Techniques, 6.3). Nil without a usable clip.
func sampling(rows []row, s *Subsample) *profile.Sampling {
	shards := s.Shards
	if len(shards) < 2 {
		// each clip was drawn alone, or nothing tells how one shard differs from the others
		shards = make([]int, len(rows))
		for i := range shards {
			shards[i] = 1
		}
	}
	var seconds, clips []float64
	sum, n, start := 0.0, 0.0, 0
	for _, count := range shards {
		total, usable := 0.0, 0.0
		for i := start; i < start+count; i++ {
			if rows[i].duration > 0 {
				total += rows[i].duration
				usable++
			}
		}
		start += count
		if usable > 0 {
			seconds, clips = append(seconds, total), append(clips, usable)
			sum, n = sum+total, n+usable
		}
	}
	if n == 0 {
		return nil
	}
	mean, half := sum/n, math.Inf(1)
	if m := float64(len(clips)); m > 1 {
		squares := 0.0
		for i := range clips {
			squares += math.Pow(seconds[i]-mean*clips[i], 2)
		}
		half = factor(len(clips)-1) * math.Sqrt(m/(m-1)*squares) / n
	}
	out := &profile.Sampling{Shards: len(s.Shards), MeanLowS: max(0, mean-half),
		LongerShare: 1 - math.Pow(1-certainty, 1/n)}
	if !math.IsInf(half, 1) {
		high := mean + half
		out.MeanHighS = &high
	}
	if s.Population > s.Drawn {
		out.Population = &s.Population
	}
	return out
}

func factor(freedom int) float64 {
	if freedom <= len(students) {
		return students[freedom-1]
	}
	return normal + 2.5/float64(freedom)
}
