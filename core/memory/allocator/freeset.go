package allocator

// bucketSize bounds the entries that an insertion moves. Together with the list of buckets, a set of n blocks costs about
// log n comparisons and a move of a kilobyte, for a hundred blocks as for a hundred thousand.
const bucketSize = 64

type entry struct {
	size, address uint64
	block         int32
}

// freeSet holds the free blocks of a pool by size, then address: sorted buckets, none of them empty.
type freeSet struct {
	buckets [][]entry
	spare   [][]entry // emptied buckets, kept so that steady use allocates nothing
}

type cursor struct{ bucket, index int }

func (s *freeSet) valid(c cursor) bool { return c.bucket < len(s.buckets) }

func (s *freeSet) at(c cursor) entry { return s.buckets[c.bucket][c.index] }

func (s *freeSet) next(c cursor) cursor {
	if c.index++; c.index == len(s.buckets[c.bucket]) {
		return cursor{c.bucket + 1, 0}
	}
	return c
}

// last points at the largest entry of a set that is not empty.
func (s *freeSet) last() cursor {
	bucket := len(s.buckets) - 1
	return cursor{bucket, len(s.buckets[bucket]) - 1}
}

// largest is the size of the last entry, 0 for an empty set.
func (s *freeSet) largest() uint64 {
	if len(s.buckets) == 0 {
		return 0
	}
	return s.at(s.last()).size
}

// lowerBound points at the first entry that is not before (size, address).
func (s *freeSet) lowerBound(size, address uint64) cursor {
	low, high := 0, len(s.buckets)
	for low < high {
		middle := (low + high) / 2
		bucket := s.buckets[middle]
		if bucket[len(bucket)-1].before(size, address) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(s.buckets) {
		return cursor{low, 0}
	}
	return cursor{low, search(s.buckets[low], size, address)}
}

func search(bucket []entry, size, address uint64) int {
	low, high := 0, len(bucket)
	for low < high {
		middle := (low + high) / 2
		if bucket[middle].before(size, address) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (e *entry) before(size, address uint64) bool {
	return e.size < size || (e.size == size && e.address < address)
}

func (s *freeSet) insert(e entry) {
	c := s.lowerBound(e.size, e.address)
	switch {
	case len(s.buckets) == 0:
		s.addBucket(0)
	case c.bucket == len(s.buckets):
		c = cursor{c.bucket - 1, len(s.buckets[c.bucket-1])}
	}
	if len(s.buckets[c.bucket]) == bucketSize {
		c = s.halve(c)
	}
	bucket := append(s.buckets[c.bucket], entry{})
	copy(bucket[c.index+1:], bucket[c.index:])
	bucket[c.index] = e
	s.buckets[c.bucket] = bucket
}

// halve splits a full bucket in two and gives the place that c has afterwards.
func (s *freeSet) halve(c cursor) cursor {
	const half = bucketSize / 2
	s.addBucket(c.bucket + 1)
	full := s.buckets[c.bucket]
	s.buckets[c.bucket+1] = append(s.buckets[c.bucket+1], full[half:]...)
	s.buckets[c.bucket] = full[:half]
	if c.index > half {
		return cursor{c.bucket + 1, c.index - half}
	}
	return c
}

func (s *freeSet) addBucket(at int) {
	var bucket []entry
	if last := len(s.spare) - 1; last >= 0 {
		bucket, s.spare = s.spare[last], s.spare[:last]
	} else {
		bucket = make([]entry, 0, bucketSize)
	}
	s.buckets = append(s.buckets, nil)
	copy(s.buckets[at+1:], s.buckets[at:])
	s.buckets[at] = bucket
}

// remove takes out the entry of that size and address, which must be there.
func (s *freeSet) remove(size, address uint64) { s.removeAt(s.lowerBound(size, address)) }

func (s *freeSet) removeAt(c cursor) {
	bucket := s.buckets[c.bucket]
	bucket = bucket[:c.index+copy(bucket[c.index:], bucket[c.index+1:])]
	if s.buckets[c.bucket] = bucket; len(bucket) > 0 {
		return
	}
	s.spare = append(s.spare, bucket)
	s.buckets = append(s.buckets[:c.bucket], s.buckets[c.bucket+1:]...)
}

// replace puts an entry in place of another one. Mostly it stays where it is, as what is left of the largest block does.
func (s *freeSet) replace(c cursor, e entry) {
	bucket := s.buckets[c.bucket]
	inOrder := (c.index == 0 || bucket[c.index-1].before(e.size, e.address)) &&
		(c.index == len(bucket)-1 || e.before(bucket[c.index+1].size, bucket[c.index+1].address))
	first, last := c.index == 0 && c.bucket > 0, c.index == len(bucket)-1 && c.bucket < len(s.buckets)-1
	if inOrder && !first && !last { // else neighbours are in other buckets
		bucket[c.index] = e
		return
	}
	s.removeAt(c)
	s.insert(e)
}

// blocks lists the entries' blocks in order, for passes that change the set.
func (s *freeSet) blocks() []int32 {
	var all []int32
	for _, bucket := range s.buckets {
		for _, e := range bucket {
			all = append(all, e.block)
		}
	}
	return all
}
