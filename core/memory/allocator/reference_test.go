package allocator

import (
	"cmp"
	"math/bits"
	"slices"
)

// reference is the same allocator written a second time for comparison: segments as plain lists of
// pieces, every question answered by looking at all of them.
type reference struct {
	s                             Settings
	segments                      []*refSegment
	nextAddress                   uint64
	allocated, requested, retries uint64
	searches                      map[bool]uint64 // by "small"
}

type refSegment struct {
	small  bool
	pieces []*refPiece
}

type refPiece struct {
	address, size, requested, since uint64
	state                           string // "free", "used", "unmapped"
}

func newReference(s Settings) *reference {
	return &reference{s: s, nextAddress: 2 << 20, searches: map[bool]uint64{}}
}

func orElse(value, otherwise uint64) uint64 {
	if value == 0 {
		return otherwise
	}
	return value
}

func (r *reference) maxSplit() uint64 { return orElse(r.s.MaxSplitSize, 1<<63) }
func (r *reference) large() uint64    { return orElse(r.s.LargeSegmentSize, 20<<20) }
func (r *reference) total() uint64    { return orElse(r.s.DeviceTotal, r.s.Limit) }

func (r *reference) allowed() (uint64, bool) {
	if r.s.MemoryFraction == nil || *r.s.MemoryFraction == 1 || r.total() == 0 {
		return 0, false
	}
	return uint64(*r.s.MemoryFraction * float64(r.total())), true
}

func (r *reference) collects() bool {
	_, limited := r.allowed()
	return limited && r.s.GarbageCollectionThreshold > 0
}

func (r *reference) page(small bool) uint64 {
	if small {
		return 2 << 20
	}
	return r.large()
}

func (r *reference) reserved() (sum uint64) {
	for _, segment := range r.segments {
		for _, piece := range segment.pieces {
			if piece.state != "unmapped" {
				sum += piece.size
			}
		}
	}
	return sum
}

func (r *reference) round(n uint64) uint64 {
	if n < 512 {
		return 512
	}
	interval := bits.Len64(n>>20) - 1
	divisions := r.s.RoundupPower2Divisions[min(max(interval, 0), 15)]
	if divisions < 2 || n <= 512*divisions {
		return (n + 511) / 512 * 512
	}
	power := uint64(1)
	for power*2 <= n {
		power *= 2
	}
	step := power / divisions
	return (n + step - 1) / step * step
}

// place is a piece with where it lies.
type place struct {
	segment *refSegment
	index   int
}

func (p place) piece() *refPiece { return p.segment.pieces[p.index] }

// freePlaces lists the free pieces of a pool by size, then address.
func (r *reference) freePlaces(small bool) []place {
	var places []place
	for _, segment := range r.segments {
		for i, piece := range segment.pieces {
			if segment.small == small && piece.state == "free" {
				places = append(places, place{segment, i})
			}
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.piece().size, b.piece().size), cmp.Compare(a.piece().address, b.piece().address))
	})
	return places
}

func (r *reference) growable(p place) uint64 {
	size := p.piece().size
	if p.index+1 < len(p.segment.pieces) && p.segment.pieces[p.index+1].state == "unmapped" {
		size += p.segment.pieces[p.index+1].size
	}
	return size
}

func (r *reference) find(small bool, size uint64) *place {
	if r.collects() {
		r.searches[small]++
	}
	places := slices.DeleteFunc(r.freePlaces(small), func(p place) bool { return p.piece().size < size })
	if r.s.ExpandableSegments {
		for len(places) > 1 && r.growable(places[1]) < r.growable(places[0]) {
			places = places[1:]
		}
	}
	if len(places) == 0 {
		return nil
	}
	best := places[0].piece().size
	if size < r.maxSplit() && best >= r.maxSplit() {
		return nil
	}
	if size >= r.maxSplit() && best >= size+orElse(r.s.MaxNonSplitRounding, 20<<20) {
		return nil
	}
	return &places[0]
}

func (r *reference) malloc(n uint64) (*refPiece, bool) {
	size := r.round(n)
	small := size <= 1<<20
	fit := r.find(small, size)
	if fit == nil {
		fit = r.grow(small, size)
	}
	if fit == nil {
		return nil, false
	}
	piece := fit.piece()
	remainder := piece.size - size
	split := size < r.maxSplit() && remainder > 1<<20
	if small || r.s.ExpandableSegments {
		split = remainder >= 512
	}
	if split {
		piece.size = size
		tail := &refPiece{address: piece.address + size, size: remainder, state: "free", since: r.searches[small]}
		fit.segment.pieces = slices.Insert(fit.segment.pieces, fit.index+1, tail)
	}
	piece.state, piece.requested = "used", n
	r.allocated += piece.size
	r.requested += n
	return piece, true
}

func (r *reference) grow(small bool, size uint64) *place {
	if r.collects() {
		r.collect()
	}
	segment := uint64(2 << 20)
	if !small {
		if segment = (size + 2<<20 - 1) / (2 << 20) * (2 << 20); size < 10<<20 {
			segment = r.large()
		}
	}
	if _, limited := r.allowed(); r.s.ThrowOnCudaMallocOOM && !limited && r.total() > 0 && r.reserved()+segment > r.total() {
		return nil
	}
	if p := r.fromDevice(small, size, segment); p != nil {
		return p
	}
	if r.releaseOversize(small, size) {
		if p := r.fromDevice(small, size, segment); p != nil {
			return p
		}
	}
	r.empty()
	r.retries++
	return r.fromDevice(small, size, segment)
}

func (r *reference) deviceHas(bytes uint64) bool {
	return r.s.Limit == 0 || r.reserved()+bytes <= r.s.Limit
}

func (r *reference) fromDevice(small bool, size, segment uint64) *place {
	if allowed, limited := r.allowed(); limited && r.reserved()+segment > allowed {
		return nil
	}
	if r.s.ExpandableSegments {
		return r.fromPages(small, size)
	}
	if !r.deviceHas(segment) {
		return nil
	}
	made := &refSegment{small: small, pieces: []*refPiece{{address: r.nextAddress, size: segment, state: "free"}}}
	r.nextAddress += (segment + 2<<20 - 1) / (2 << 20) * (2 << 20)
	r.segments = append(r.segments, made)
	return &place{made, 0}
}

// fromPages walks over all places where a run of free and unmapped pieces could start, by address.
func (r *reference) fromPages(small bool, size uint64) *place {
	page := r.page(small)
	for _, segment := range r.segments {
		for i, piece := range segment.pieces {
			if segment.small != small || piece.state != "unmapped" {
				continue
			}
			if i > 0 && segment.pieces[i-1].state == "free" {
				i--
			}
			run := uint64(0)
			for j := i; j < len(segment.pieces) && segment.pieces[j].state != "used"; j++ {
				run += segment.pieces[j].size
			}
			if run >= size {
				return r.mapRun(place{segment, i}, size)
			}
		}
	}
	reach := uint64(1 << 42)
	if r.total() > 0 {
		reach = r.total() + r.total()/8
	}
	reach = (reach + page - 1) / page * page
	if reach < size {
		return nil
	}
	start := (r.nextAddress + page - 1) / page * page
	r.nextAddress = start + reach
	made := &refSegment{small: small, pieces: []*refPiece{{address: start, size: reach, state: "unmapped"}}}
	r.segments = append(r.segments, made)
	return r.mapRun(place{made, 0}, size)
}

func (r *reference) mapRun(first place, size uint64) *place {
	page := r.page(first.segment.small)
	for first.piece().state != "free" || first.piece().size < size {
		pieces, have := first.segment.pieces, uint64(0)
		unmapped := first.index
		if first.piece().state == "free" {
			have, unmapped = first.piece().size, first.index+1
		}
		target := pieces[unmapped]
		bytes := (min(size-have, target.size) + page - 1) / page * page
		if !r.deviceHas(bytes) {
			return nil
		}
		mapped := &refPiece{address: target.address, size: bytes, state: "free"}
		target.address, target.size = target.address+bytes, target.size-bytes
		pieces = slices.Insert(pieces, unmapped, mapped)
		if target.size == 0 {
			pieces = slices.Delete(pieces, unmapped+1, unmapped+2)
		}
		first.segment.pieces = pieces
		r.join(first.segment)
		for i, piece := range first.segment.pieces { // where the mapped bytes are now
			if piece.address <= mapped.address && mapped.address < piece.address+piece.size {
				first.index = i
			}
		}
		first.piece().since = r.searches[first.segment.small]
	}
	return &first
}

// join merges all neighbours of one state.
func (r *reference) join(segment *refSegment) {
	for i := 0; i+1 < len(segment.pieces); {
		a, b := segment.pieces[i], segment.pieces[i+1]
		if a.state == "used" || a.state != b.state {
			i++
			continue
		}
		a.size += b.size
		segment.pieces = slices.Delete(segment.pieces, i+1, i+2)
	}
}

func (r *reference) free(piece *refPiece) {
	r.allocated -= piece.size
	r.requested -= piece.requested
	for _, segment := range r.segments {
		if i := slices.Index(segment.pieces, piece); i >= 0 {
			piece.state = "free"
			r.join(segment)
			for _, p := range segment.pieces {
				if p.address <= piece.address && piece.address < p.address+p.size {
					p.since = r.searches[segment.small]
				}
			}
			return
		}
	}
}

func (r *reference) drop(segment *refSegment) {
	r.segments = slices.DeleteFunc(r.segments, func(s *refSegment) bool { return s == segment })
}

func (r *reference) empty() {
	for _, segment := range slices.Clone(r.segments) {
		if !r.s.ExpandableSegments {
			if len(segment.pieces) == 1 && segment.pieces[0].state == "free" {
				r.drop(segment)
			}
			continue
		}
		// else a failed attempt left it: it stays
		mapped := len(segment.pieces) > 1 || segment.pieces[0].state == "free"
		r.unmapPages(segment)
		if mapped && len(segment.pieces) == 1 && segment.pieces[0].state == "unmapped" {
			r.drop(segment)
		}
	}
}

// unmapPages cuts the free pieces into pages and what is left, and takes the pages' memory away.
func (r *reference) unmapPages(segment *refSegment) {
	page := r.page(segment.small)
	var pieces []*refPiece
	for _, piece := range segment.pieces {
		first, end := (piece.address+page-1)/page*page, (piece.address+piece.size)/page*page
		if piece.state != "free" || first >= end {
			pieces = append(pieces, piece)
			continue
		}
		since := r.searches[segment.small]
		if first > piece.address {
			pieces = append(pieces, &refPiece{address: piece.address, size: first - piece.address, state: "free", since: since})
		}
		pieces = append(pieces, &refPiece{address: first, size: end - first, state: "unmapped"})
		if last := piece.address + piece.size; last > end {
			pieces = append(pieces, &refPiece{address: end, size: last - end, state: "free", since: since})
		}
	}
	segment.pieces = pieces
	r.join(segment)
}

func (r *reference) releaseOversize(small bool, size uint64) bool {
	if r.s.MaxSplitSize == 0 || r.s.ExpandableSegments {
		return false
	}
	wanted := max(size, r.maxSplit())
	places := slices.DeleteFunc(r.freePlaces(small), func(p place) bool { return p.piece().size < r.maxSplit() })
	for _, p := range places {
		if p.piece().size >= wanted {
			r.drop(p.segment)
			return true
		}
	}
	released := uint64(0)
	for i := len(places) - 1; i >= 0 && released < wanted; i-- {
		released += places[i].piece().size
		r.drop(places[i].segment)
	}
	return released >= wanted
}

func (r *reference) collect() {
	allowed, _ := r.allowed()
	threshold := uint64(r.s.GarbageCollectionThreshold * float64(allowed))
	if r.reserved() <= threshold {
		return
	}
	target, gone := r.reserved()-threshold, uint64(0)
	age := func(p place) uint64 { return r.searches[false] - p.piece().since }
	for gone < target {
		unsplit := slices.DeleteFunc(r.freePlaces(false), func(p place) bool { return len(p.segment.pieces) > 1 })
		sum := uint64(0)
		for _, p := range unsplit {
			sum += age(p)
		}
		before := gone
		for _, p := range unsplit {
			if !r.s.ExpandableSegments && float64(age(p)) >= float64(sum)/float64(len(unsplit)) {
				gone += p.piece().size
				r.drop(p.segment)
			}
		}
		if gone == before {
			return
		}
	}
}
