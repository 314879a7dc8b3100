package plan

import (
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// arithmetic is what clips need of the model's products, and how fast the slowest GPU could be at that; nil where neither config nor trace
// tells. A trace alone has two lengths, which leaves the square out.
func (s *search) arithmetic(d *draft, f evaluated) (*profile.Arithmetic, error) {
	a := &profile.Arithmetic{Unit: "seconds"}
	if f.throughput.slowest != nil {
		rate := f.throughput.slowest.Rate(f.precision, d.TF32)
		a.Rate = &rate
	}
	if s.estimator != nil {
		return a, s.fromConfig(a, f)
	}
	if f.traced == nil || len(f.traced.Work) == 0 {
		return nil, nil
	}
	short, usual := f.traced.Work[0], f.traced.Work[1]
	perClip := usual.ModelFLOPs() / float64(usual.Batch)
	if usual.Seconds > short.Seconds {
		a.ClipFLOPs[1] = (perClip - short.ModelFLOPs()) / (usual.Seconds - short.Seconds)
	}
	a.ClipFLOPs[0] = perClip - a.ClipFLOPs[1]*usual.Seconds
	return a, nil
}

// fewTokens are lengths of a transcript that every decoder takes.
var fewTokens = [3]int64{1, 2, 4}

// fromConfig lays a parabola through three lengths: attention's scores grow with the square, all else is linear. Where audio is padded to a
// fixed length, transcripts are what differs.
func (s *search) fromConfig(a *profile.Arithmetic, f evaluated) error {
	var x, y [3]float64
	q, longest := s.question(f.candidate, 1), max(4*estimate.Shortest, s.clips.longest())
	for i := range x {
		if s.clips.fixed > 0 {
			q.Labels, a.Unit = fewTokens[i], "labels"
			x[i] = float64(q.Labels)
		} else {
			q.Seconds = longest * [...]float64{0.25, 0.5, 1}[i]
			x[i] = q.Seconds
		}
		work, err := s.estimator.Work(q)
		if err != nil {
			return err
		}
		y[i] = work.ModelFLOPs()
	}
	a.ClipFLOPs = parabola(x, y)
	return nil
}

// parabola has the coefficients of the one through three points, by divided differences.
func parabola(x, y [3]float64) [3]float64 {
	first := (y[1] - y[0]) / (x[1] - x[0])
	square := ((y[2]-y[1])/(x[2]-x[1]) - first) / (x[2] - x[0])
	linear := first - square*(x[0]+x[1])
	return [3]float64{y[0] - x[0]*(linear+square*x[0]), linear, square}
}
