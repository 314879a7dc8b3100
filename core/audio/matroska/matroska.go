// Package matroska measures Matroska and WebM files, made of EBML elements.
package matroska

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// IDs of elements. Source: RFC 9559, section 5.1.
const (
	idEBML          = 0x1a45dfa3
	idSegment       = 0x18538067
	idInfo          = 0x1549a966
	idScale         = 0x2ad7b1
	idDuration      = 0x4489
	idTracks        = 0x1654ae6b
	idCluster       = 0x1f43b675
	idChecksum      = 0xbf
	idTimestamp     = 0xe7
	idSimpleBlock   = 0xa3
	idBlockGroup    = 0xa0
	idBlock         = 0xa1
	idBlockDuration = 0x9b
	idDiscard       = 0x75a2
)

const (
	defaultScale = 1_000_000 // ns in a tick
	nanos        = 1e9
)

// document collects what is known of a file while its segment is walked.
type document struct {
	w       ebmlReader
	scale   float64 // ns in a tick
	claimed float64 // s that the header claims, 0 for nothing
	track   *track
	others  int       // how many other tracks
	frames  []element // of the current block
	every   bool      // read every block
	cut     bool      // something that is referred to is missing
	cluster float64   // ticks at which the cluster starts
	played
	skipping
}

// played sums up the blocks of the track that were read.
type played struct {
	samples int64   // that a decoder outputs for them
	unknown bool    // the duration of some blocks is unknown
	discard int64   // samples to drop at their ends
	any     bool    // whether there was a block
	mute    bool    // none yielded samples, as Vorbis' first block does not
	first   float64 // s at which the first starts
	end     float64 // s at which the last one ends
}

// Parse counts the blocks of the first audio track: what the header claims is rounded, leaves out
// what decoders drop, is about the longest track, and is missing from live recordings. Source: RFC
// 9559.
func Parse(s *media.File, base int64) (media.Info, error) {
	m := &document{w: ebmlReader{media.NewWindow(s)}}
	head, ok := m.w.element(base, s.Size)
	if !ok || head.cut || head.open {
		return media.Info{}, media.Corrupt("ends inside its EBML header")
	}
	var segment element
	for off := head.end; ; off = segment.end {
		if segment, ok = m.w.element(off, s.Size); !ok || !m.w.Spend(media.StepsHead) {
			return media.Info{}, media.Corrupt("ends before its segment, which holds everything")
		}
		if segment.id == idSegment {
			break
		}
	}
	m.every = s.Size <= wholeWalk
	info, err := m.segment(segment)
	if m.w.Steps < 0 {
		return media.Info{}, m.w.Spent()
	}
	return info, err
}

// segment walks the segment, and again where its first and last blocks contradict its header.
func (m *document) segment(e element) (media.Info, error) {
	m.scale, m.cut = defaultScale, e.cut
	if err := m.walk(e.body, e.end); err != nil {
		return media.Info{}, err
	}
	if m.track == nil {
		if m.cut {
			return media.Info{}, media.Corrupt("ends before its tracks")
		}
		return media.Info{}, media.Corrupt("holds no audio track")
	}
	if err := m.lastCluster(e.end); err != nil {
		return media.Info{}, err
	}
	if m.skipped && (m.blocks == 0 || m.contradicted() || !m.plausible()) {
		m.every, m.played, m.skipping = true, played{}, skipping{}
		if err := m.walk(e.body, e.end); err != nil {
			return media.Info{}, err
		}
	}
	return m.length()
}

// walk reads the elements from off to end. Clusters and their children are treated as one sequence:
// a live recording does not have the sizes of its clusters.
func (m *document) walk(off, end int64) error {
	for off < end && m.w.Spend(media.StepsHead) {
		e, ok := m.w.element(off, end)
		if !ok {
			m.cut = true
			break
		}
		off = e.end
		switch e.id {
		case idInfo:
			m.info(e)
		case idTracks:
			if err := m.tracks(e); err != nil {
				return err
			}
		case idCluster:
			off = m.enter(e, end)
		case idTimestamp:
			m.cluster = float64(m.w.number(e))
		case idSimpleBlock:
			m.block(e, 0, 0)
		case idBlockGroup:
			m.group(e)
		case idEBML, idSegment: // another document
			return nil
		default:
			if e.open {
				return nil
			}
		}
		m.cut = m.cut || e.cut
	}
	return nil
}

// info reads the clock and the length that the header claims.
func (m *document) info(e element) {
	var ticks float64
	for c := range m.w.elements(e) {
		switch c.id {
		case idScale:
			m.scale = max(1, float64(m.w.number(c)))
		case idDuration:
			ticks = m.w.real(c)
		}
	}
	m.claimed = max(0, ticks*m.scale/nanos)
}

// contradicted reports whether the header claims another length than the end of the last block, of
// a file that holds only sound.
func (m *document) contradicted() bool {
	return m.others == 0 && !m.cut && m.claimed > 0 &&
		(m.claimed > m.end+media.ClaimSlack || m.claimed < m.end-media.ClaimSlack)
}

// plausible reports whether the file is large enough for the sound between the first and the last
// block: 120 ms of Opus take some bytes.
func (m *document) plausible() bool { return (m.end-m.first)/0.12 <= float64(m.w.File.Size)/4 }

func (m *document) length() (media.Info, error) {
	t := m.track
	rate := float64(t.info.SampleRate)
	if m.unknown && m.claimed > m.end && m.others == 0 && !m.cut {
		m.end, t.info.Method = m.claimed, "header"
	}
	if (m.unknown || m.skipped) && !m.plausible() {
		return media.Info{}, media.Corrupt("ends after %.0f s, more than %d bytes can hold", m.end,
			m.w.File.Size)
	}
	samples := int64((m.end-m.first)*rate + 0.5)
	switch {
	case t.info.Method == "header":
	case m.skipped:
		t.info.Method = "tail"
		samples = t.packets.snap((m.end-m.first)*rate, 1.5*rate*max(m.scale/nanos, 0.001))
	default:
		t.info.Method = "walked"
		if !m.unknown {
			samples = m.samples
		}
	}
	samples -= min(samples, t.skip()+m.discard)
	return media.Finish(t.info, samples, m.otherClaim(rate))
}

// otherClaim returns the samples that the header claims, 0 where that is what the file holds, but
// for rounding. In a video the pictures may last longer.
func (m *document) otherClaim(rate float64) int64 {
	slack := media.ClaimSlack
	if m.cut {
		slack = 0.002
	}
	if m.claimed <= 0 || m.claimed > media.MaxTicks/rate || m.others > 0 && !m.cut ||
		math.Abs(m.claimed-m.end) <= slack {
		return 0
	}
	return int64(m.claimed * rate)
}
