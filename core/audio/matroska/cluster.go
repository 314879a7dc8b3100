package matroska

import (
	"bytes"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	// wholeWalk is the file size up to which every block is read. In a larger file whose clusters
	// have sizes, the first and the last cluster suffice.
	wholeWalk   = 1 << 20
	maxClusters = 1 << 16
)

var clusterMagic = be.AppendUint32(nil, idCluster)

// skipping is what was left out of a walk.
type skipping struct {
	passed  []element // clusters not looked into
	near    int       // how many of them lie before the jump to the end of the file; 0 without one
	jumped  bool      // a jump was tried
	skipped bool      // there are blocks that were not looked at
	blocks  int64     // of the track, since the last ones that were skipped
}

// enter returns the offset at which to continue at a cluster: inside it, behind it, or at the last
// cluster. In a live recording, whose clusters have no sizes, every block is read while there is
// time.
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

// jump returns, once, the offset of the last cluster if that lies near the end and behind from;
// else from.
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
				m.near = len(m.passed)
				return off + int64(i)
			}
		}
		if off == from {
			break
		}
	}
	return from
}

// startsCluster reports whether the bytes at off, which look like the ID of a cluster, are one: its
// clock comes first, or after a checksum, and behind it another element or the end.
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

// lastCluster looks into the clusters that were passed, from the last one back, until one holds a
// block of the track. Where none behind the jump does, the segment is walked cluster by cluster.
func (m *document) lastCluster(end int64) error {
	m.w.Step = media.WindowLen
	for {
		for i := len(m.passed) - 1; i >= m.near && m.blocks == 0; i-- {
			if err := m.walk(m.passed[i].body, m.passed[i].end); err != nil {
				return err
			}
		}
		if m.near == 0 || m.blocks > 0 {
			return nil
		}
		m.passed, m.near = m.passed[:m.near], 0
		if err := m.walk(m.passed[len(m.passed)-1].end, end); err != nil {
			return err
		}
	}
}
