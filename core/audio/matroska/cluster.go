package matroska

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// A Matroska file is a sequence of clusters, each with a timestamp and blocks of audio (RFC 9559,
// 5.1.3). No element holds the number of samples, but the first and the last block have timestamps.
// A walk of a large file therefore reads the first cluster, jumps to the last one, and skips those
// in between.

const (
	// wholeWalk is the file size up to which every block is read. In a larger file whose clusters
	// have sizes, the first and the last cluster suffice.
	wholeWalk   = 1 << 20
	maxClusters = 1 << 16
)

const clusterMagic = "\x1f\x43\xb6\x75" // idCluster as it is written

// skipping is what a walk skipped.
type skipping struct {
	passed     []element // clusters that were not read
	beforeJump int       // how many of passed lie before the jump to the last cluster; 0 without it
	jumped     bool      // a jump was tried
	skipped    bool      // there are blocks that were not read
	blocks     int64     // of the track that were read since the last skipped ones
}

// enter returns the offset at which a walk continues from cluster e: inside it, to read its blocks,
// behind it, or at the last cluster. Blocks are read up to the first one of the track. A cluster of
// a live recording has no size, so it cannot be skipped: its blocks are read while more than half
// of the steps allowed for a file are left.
func (m *document) enter(e element, end int64) int64 {
	if m.every || !m.any || e.cut {
		return e.body
	}
	if e.open || len(m.passed) >= maxClusters {
		if m.w.Steps > media.MaxSteps/2 {
			return e.body
		}
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

// jump returns the offset of the last cluster, which it looks for from `from` on, in the last 64
// KiB and then the last MiB before end. Without success, and at a second call, it returns from.
func (m *document) jump(from, end int64) int64 {
	if m.jumped {
		return from
	}
	m.jumped = true
	for _, n := range [...]int64{64 << 10, 1 << 20} {
		off := max(from, end-n)
		b := m.w.Load(off, int(end-off))
		for i := len(b); i > 0 && m.w.Spend(media.StepsHead); {
			if i = media.LastIndex(b[:i], clusterMagic); i >= 0 &&
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

// startsCluster reports whether a cluster starts at off, where the bytes of its ID are: audio may
// have the same bytes. A cluster starts with its timestamp, or a checksum before that (RFC 9559,
// 5.1.3.1), and another element or the end follows it.
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

// lastCluster reads the passed clusters, from the last one back, until one has a block of the
// track. When there is none after the jump, it walks from the last cluster before the jump to the
// end of the segment, and reads back again. segment calls it after its walk.
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
