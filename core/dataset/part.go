package dataset

import (
	"hash/crc32"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// maxParts bounds what a source is divided into.
const maxParts = 1_000_000

// Part is one of Count parts of a source, equal in files or, of tar shards, in archives. Scans of all parts, on whatever
// machines, are put together by adding their pages in order (Piece.Page), with the result of one scan.
type Part struct {
	Index int `json:"index"` // from 0
	Count int `json:"count"`
}

func (p Part) of(entries []entry) []entry {
	n := len(entries)
	return entries[p.Index*n/p.Count : (p.Index+1)*n/p.Count]
}

// listing is a checksum of the names of entries, never 0: all parts must have divided the same list.
func listing(entries []entry) uint32 {
	sum := uint32(0)
	var name []byte
	for i := range entries {
		name = append(name[:0], entries[i].path...)
		if entries[i].clip != nil {
			name = append(name, entries[i].clip.Path...)
		}
		sum = crc32.Update(sum, castagnoli, append(name, 0))
	}
	return max(1, sum)
}

// sameListing refuses a page of a part that divided another list than the parts before.
func (c *Clips) sameListing(p *Page) error {
	if c.listing != 0 && p.Listing != c.listing {
		return fault.New(fault.Corrupt, "scan it again when nothing writes to it, with the same view of it on all machines",
			"the parts of the scan found different files: the source changed meanwhile, or machines see it differently")
	}
	c.listing = p.Listing
	return nil
}
