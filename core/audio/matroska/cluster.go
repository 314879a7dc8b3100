package matroska

import (
	"bytes"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// A Matroska file is a sequence of clusters, each with a timestamp and blocks of audio (RFC 9559,
// 5.1.3). Nothing in it is the number of samples, but the first and the last block show the length.
// A walk of a large file therefore reads the first cluster, jumps to the last one and skips those
// in between.

const (
	// wholeWalk is the file size up to which every block is read. In a larger file whose clusters
	// have sizes, the first and the last cluster suffice.
	wholeWalk   = 1 << 20
	maxClusters = 1 << 16
)

var clusterMagic = be.AppendUint32(nil, idCluster)

// skipping is what a walk skipped.
type skipping struct {
	passed     []element // clusters that were not read
	beforeJump int       // how many of passed lie before the jump to the last cluster; 0 without it
	jumped     bool      // a jump was tried
	skipped    bool      // there are blocks that were not read
	blocks     int64     // of the track that were read since the last skipped ones
}

// enter decides how a walk continues at cluster e, and returns the offset: inside it, to read its
// blocks, behind it, or at the last cluster. Blocks are read until the first one of the track. In a
// live recording, whose clusters have no sizes, every block is read until half of the steps allowed
// for a file are spent.
func (m *document) enter(e element, end int64) int64 {
	live := e.open || len(m.passed) >= maxClusters
	if m.every || !m.any || e.cut || live && m.w.Steps > media.MaxSteps/2 {
		return e.body
	}
	if live {
		target := m.jump(e.body, end)
		if target > e.body {
			m.skipped, m.blocks = true, 0
		}
		return target
	}
	m.w.Step = media.HopLen
	m.passed, m.skipped, m.blocks = append(m.passed, e), true, 0
	return m.jump(e.end, end)
}

// jump returns the offset of the last cluster when it finds that in the last 64 KiB or the last MiB
// before end, not before from. Otherwise, and when a jump was tried already, it returns from.
func (m *document) jump(from, end int64) int64 {
	if m.jumped {
		return from
	}
	m.jumped = true
	for _, n := range [...]int64{64 << 10, 1 << 20} {
		off := max(from, end-n)
		b := m.w.Load(off, int(end-off))
		for i := len(b); i > 0 && m.w.Spend(media.StepsHead); {
			if i = bytes.LastIndex(b[:i], clusterMagic); i >= 0 &&
				m.startsCluster(off+int64(i), end) {
				m.beforeJump = len(m.passed)
				return off + int64(i)
			}
		}
		if off == from {
			break
		}
	}
	return from
}

// startsCluster reports whether a cluster starts at off, where the bytes of its ID are: they may be
// audio, too. Its timestamp comes first, or after a checksum (RFC 9559, 5.1.3.1), and another
// element or the end is behind it.
func (m *document) startsCluster(off, end int64) bool {
	e, ok := m.w.element(off, end)
	if !ok || e.cut && !m.cut {
		return false
	}
	first, ok := m.w.element(e.body, e.end)
	if ok && first.id == idChecksum {
		first, ok = m.w.element(first.end, e.end)
	}
	if !ok || first.id != idTimestamp || first.size() > 8 {
		return false
	}
	_, ok = m.w.element(e.end, end)
	return ok || e.end == end
}

// lastCluster reads the passed clusters, from the last one back, until one holds a block of the
// track. When there is none behind the jump, it walks the clusters between the last one before the
// jump and the end of the segment, and reads back once more. segment calls it after its walk.
func (m *document) lastCluster(end int64) error {
	m.w.Step = media.WindowLen
	for {
		for i := len(m.passed) - 1; i >= m.beforeJump && m.blocks == 0; i-- {
			if err := m.walk(m.passed[i].body, m.passed[i].end); err != nil {
				return err
			}
		}
		if m.beforeJump == 0 || m.blocks > 0 {
			return nil
		}
		m.passed, m.beforeJump = m.passed[:m.beforeJump], 0
		if err := m.walk(m.passed[len(m.passed)-1].end, end); err != nil {
			return err
		}
	}
}
