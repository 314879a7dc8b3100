package plan

import "github.com/asrconfig/asrconfig-go/core/profile"

// arithmetic is what clips need of the model's products, and how fast the slowest GPU could be at
// that; nil without a trace. Attention's scores grow with the square of a length, all else is
// linear: a parabola through three lengths is exact. Where audio is padded to a fixed length,
// transcripts are what differs.
func (s *search) arithmetic(d *draft, f evaluated) *profile.Arithmetic {
	if len(f.traced.Work) != 3 {
		return nil
	}
	a := &profile.Arithmetic{Unit: "seconds"}
	if f.throughput.slowest != nil {
		rate := f.throughput.slowest.Rate(f.precision, d.TF32)
		a.Rate = &rate
	}
	var x, y [3]float64
	for i, work := range f.traced.Work {
		x[i], y[i] = work.Seconds, work.ModelFLOPs()/float64(work.Batch)
		if s.clips.fixed > 0 {
			a.Unit, x[i] = "labels", float64(work.Labels)
		}
	}
	if x[0] == x[1] || x[1] == x[2] || x[0] == x[2] {
		a.ClipFLOPs[0] = y[1]
		return a
	}
	a.ClipFLOPs = parabola(x, y)
	return a
}

// parabola has the coefficients of the one through three points, by divided differences.
func parabola(x, y [3]float64) [3]float64 {
	first := (y[1] - y[0]) / (x[1] - x[0])
	square := ((y[2]-y[1])/(x[2]-x[1]) - first) / (x[2] - x[0])
	linear := first - square*(x[0]+x[1])
	return [3]float64{y[0] - x[0]*(linear+square*x[0]), linear, square}
}
