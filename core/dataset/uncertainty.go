package dataset

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// certainty is the share of draws in which an interval holds what it is of.
const certainty = 0.95

// students are the factors of an interval's half width by the degrees of freedom, from one on, and normal is that of many (tables of
// Student's t distribution, two-sided 95 %).
var students = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}

const normal = 1.96

// sampling tells how far what was measured may be off. shards are how many rows were read of each shard of a stream, one behind the
// other: clips of a shard may be alike, so then shards are what was drawn, and their totals tell the error of the mean (the ratio
// estimator of cluster sampling: Cochran, Sampling Techniques, 6.3). Nil without a usable clip.
func sampling(rows []row, s *Subsample) *profile.Sampling {
	shards := s.Shards
	if len(shards) < 2 { // each clip was drawn alone, or nothing tells how one shard differs from the others
		shards = make([]int, len(rows))
		for i := range shards {
			shards[i] = 1
		}
	}
	var seconds, clips []float64
	sum, n, at := 0.0, 0.0, 0
	for _, count := range shards {
		total, usable := 0.0, 0.0
		for i := at; i < at+count; i++ {
			if rows[i].duration > 0 {
				total += rows[i].duration
				usable++
			}
		}
		at += count
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
	out := &profile.Sampling{Shards: len(s.Shards), MeanLowS: max(0, mean-half), LongerShare: 1 - math.Pow(1-certainty, 1/n)}
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
