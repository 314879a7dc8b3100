package forecast

import (
	"math"
	"slices"
)

// maxPoints is the number of points that a trend is computed from; longer windows are made of
// medians of neighbours.
const maxPoints = 24

// windows are the lengths, in points of a resolution, over which a trend is looked for.
var windows = [...]int{12, 24, 48, resolutionSize}

// trend is a straight growth over a window.
type trend struct {
	slope float64 // of y per unit of u, above 0
	rise  float64 // slope × span
	span  float64 // of u
	first point   // of the window
	from  float64 // where the growth began, by u
}

// demand is what makes a growth one.
type demand struct {
	rise float64 // the least rise
	sign float64 // least Mann–Kendall statistic, in standard deviations
	k    float64 // y depends on x by so much, which is taken out
}

// series is a window made short.
type series struct {
	u, y  [maxPoints]float64
	n     int
	group int // points that each one is made of
}

// condense takes k·x out of every y and halves the points until they are few.
func condense(points []point, k float64) (s series) {
	group := (len(points) + maxPoints - 1) / maxPoints
	s.group = group
	var values [resolutionSize/maxPoints + 1]float64
	for len(points) >= max(group, 1) && s.n < maxPoints {
		var u float64
		for i, p := range points[:group] {
			u += p.u
			values[i] = p.without(k)
		}
		s.u[s.n], s.y[s.n] = u/float64(group), median(values[:group])
		s.n++
		points = points[group:]
	}
	return s
}

// climbs reports whether y grows steadily over the points, by the median of all slopes between two
// of them (Theil–Sen), which up to 29 % of outliers do not move. A growth must
//   - be seen in the signs (Mann–Kendall): chance makes rows of rising numbers too,
//   - rise by six times the scatter around its line,
//   - be no jump: the two largest increments make up half of it at most,
//   - be straight: as much in the later half as in the earlier, and still some in the last
//     quarter. Records of a random series and caches that fill slow down, and a window in which a
//     growth only begins would have a lower slope.
func climbs(points []point, d demand) (trend, bool) {
	if len(points) < 8 || !hinted(points, d) {
		return trend{}, false
	}
	s := condense(points, d.k)
	slope, sign := s.slope()
	span := s.u[s.n-1] - s.u[0]
	rise := slope * span
	if !(rise >= d.rise) || sign < d.sign || rise < 6*s.scatter(slope) || s.jumps() > rise/2 ||
		!s.straight() {
		return trend{}, false
	}
	return trend{slope: slope, rise: rise, span: span, first: points[0], from: points[0].u}, true
}

// hinted is a quick look that spares most series the rest: the end against the beginning.
func hinted(points []point, d demand) bool {
	n := len(points)
	level := func(i int) float64 { return points[i].without(d.k) }
	first := middle(level(0), level(1), level(2))
	last := middle(level(n-1), level(n-2), level(n-3))
	return last-first >= d.rise/2
}

// slope is Theil–Sen's, with the Mann–Kendall statistic of the same pairs in standard deviations.
func (s *series) slope() (slope, sign float64) {
	var slopes [maxPoints * (maxPoints - 1) / 2]float64
	n, score := 0, 0
	for i := range s.n {
		for j := i + 1; j < s.n; j++ {
			if s.u[j] > s.u[i] {
				slopes[n] = (s.y[j] - s.y[i]) / (s.u[j] - s.u[i])
				n++
			}
			switch {
			case s.y[j] > s.y[i]:
				score++
			case s.y[j] < s.y[i]:
				score--
			}
		}
	}
	if n == 0 {
		return 0, 0
	}
	count := float64(s.n)
	return median(slopes[:n]), float64(score) / math.Sqrt(count*(count-1)*(2*count+5)/18)
}

// scatter is the spread of the points around a line of the slope: 1.4826 median absolute
// deviations, the standard deviation of normal noise.
func (s *series) scatter(slope float64) float64 {
	var residuals [maxPoints]float64
	for i := range s.n {
		residuals[i] = s.y[i] - slope*s.u[i]
	}
	return 1.4826 * deviation(residuals[:s.n])
}

// deviation is the median absolute deviation of the values, which it changes.
func deviation(values []float64) float64 {
	centre := median(values)
	for i := range values {
		values[i] = math.Abs(values[i] - centre)
	}
	return median(values)
}

// jumps is the sum of the two largest increments, over two points where a median of several may
// have split a jump.
func (s *series) jumps() float64 {
	lag := min(s.group, 2)
	first, second, top := 0.0, 0.0, -lag
	for i := lag; i < s.n; i++ {
		if step := s.y[i] - s.y[i-lag]; step > first {
			first, top = step, i
		}
	}
	for i := lag; i < s.n; i++ {
		if i <= top-lag || i >= top+lag {
			second = max(second, s.y[i]-s.y[i-lag])
		}
	}
	return first + second
}

// straight looks at the shares of the rise that the later half and the last quarter have.
func (s *series) straight() bool {
	around := func(i int) float64 { return middle(s.y[i-1], s.y[i], s.y[i+1]) }
	begin, half, late, end := around(1), around(s.n/2), around(s.n*3/4), around(s.n-2)
	if !(end > begin) {
		return false
	}
	later := (end - half) / (end - begin)
	return later >= 0.3 && later <= 0.7 && end-late >= 0.08*(end-begin)
}

// median sorts the values; NaN of none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func middle(a, b, c float64) float64 { return max(min(a, b), min(max(a, b), c)) }

// A multires keeps a series of any length in little memory: the newest points one by one, older
// ones by the lowest (or highest) of every 4, 16, 64, …. So a fast growth is seen in the newest
// steps and a slow one over a hundred thousand.
const (
	resolutions    = 7
	resolutionSize = 96 // points of a resolution
	decimation     = 4  // points that become one of the next resolution
)

// point is one value of a series.
type point struct {
	u   float64 // where: a count of steps, or seconds
	atS float64 // time, seconds
	y   float64 // the value
	x   float64 // the length of the batch that it belongs to; NaN when not known
}

// without is the value less k for each unit of length.
func (p point) without(k float64) float64 {
	if k == 0 || math.IsNaN(p.x) {
		return p.y
	}
	return p.y - k*p.x
}

// top is the highest value, 0 of none.
func top(points []point) (highest float64) {
	for _, p := range points {
		highest = max(highest, p.y)
	}
	return highest
}

// newest is the newest resolutionSize points of a series, which move to the front when it is full.
type newest struct {
	points [2 * resolutionSize]point
	n      int
}

type resolution struct {
	newest
	extreme point // of those that will be one of the next resolution
	grouped int
}

type multires struct {
	levels  [resolutions]resolution
	highest bool // a group is stood for by its highest point, not by its lowest
}

func (l *multires) push(p point) {
	for i := range l.levels {
		r := &l.levels[i]
		r.push(p)
		if r.grouped == 0 || (p.y > r.extreme.y) == l.highest {
			r.extreme = p
		}
		if r.grouped++; r.grouped < decimation {
			return
		}
		p, r.grouped = r.extreme, 0
	}
}

func (s *newest) push(p point) {
	if s.n == len(s.points) {
		s.n = copy(s.points[:], s.points[resolutionSize:])
	}
	s.points[s.n] = p
	s.n++
}

// last returns the newest n points, oldest first; fewer when there are fewer.
func (s *newest) last(n int) []point {
	return s.points[s.n-min(n, s.n, resolutionSize) : s.n]
}

// last returns the newest points of resolution i.
func (l *multires) last(i, n int) []point { return l.levels[i].last(n) }

// due reports whether resolution i needs another look after the n-th point: several of its newest
// points have changed.
func due(i int, n uint64) bool {
	every := uint64(4)
	for range i {
		every *= decimation
	}
	return n%every == 0
}
