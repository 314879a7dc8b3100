package dataset

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// remembered is what the cache knows of one file: how it was when it was measured, and what came out.
type remembered struct {
	key      uint64 // of its path, and of the library that measured it
	stat     media.Stat
	duration float64
	claimed  float64 // 0 without a claim that differs
	kind     kind
	seen     uint32 // when it was last found useful, seconds of Unix time
}

// A slot is one remembered file in the cache's table: 88 bytes, little-endian, with a checksum, so that one that was half
// written, or that was never written, is told from a good one.
const (
	slotSize   = 88
	codecAt    = 64
	seenAt     = 80
	checkAt    = 84
	codecLimit = seenAt - codecAt
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// put writes r into a slot. It says no when r cannot be told in one.
func (r *remembered) put(slot []byte) bool {
	k := &r.kind
	method := slices.Index(profile.Methods, k.method)
	if method < 0 || len(k.codec) > codecLimit || k.channels > math.MaxUint16 || k.bits > math.MaxUint8 || k.sampleRate > math.MaxInt32 {
		return false
	}
	le := binary.LittleEndian
	le.PutUint64(slot, r.key)
	le.PutUint64(slot[8:], uint64(r.stat.Size))
	le.PutUint64(slot[16:], uint64(r.stat.ModNS))
	le.PutUint64(slot[24:], uint64(r.stat.ChangeNS))
	le.PutUint64(slot[32:], math.Float64bits(r.duration))
	le.PutUint64(slot[40:], math.Float64bits(r.claimed))
	le.PutUint64(slot[48:], r.stat.Digest)
	le.PutUint32(slot[56:], uint32(k.sampleRate))
	le.PutUint16(slot[60:], uint16(k.channels))
	slot[62], slot[63] = byte(k.bits), byte(method)
	clear(slot[codecAt:seenAt])
	copy(slot[codecAt:seenAt], k.codec)
	le.PutUint32(slot[seenAt:], r.seen)
	le.PutUint32(slot[checkAt:], crc32.Checksum(slot[:checkAt], castagnoli))
	return true
}

// intact says whether the slot holds what was once written there.
func intact(slot []byte) bool {
	return keyOf(slot) != 0 && binary.LittleEndian.Uint32(slot[checkAt:]) == crc32.Checksum(slot[:checkAt], castagnoli)
}

func keyOf(slot []byte) uint64 { return binary.LittleEndian.Uint64(slot) }

func seenOf(slot []byte) uint32 { return binary.LittleEndian.Uint32(slot[seenAt:]) }

// get reads a whole slot, with one string for each codec. It says no when no clip can be like that.
func (r *remembered) get(slot []byte, codecs map[string]string) bool {
	le := binary.LittleEndian
	method := int(slot[63])
	if method >= len(profile.Methods) {
		return false
	}
	*r = remembered{
		key: keyOf(slot), seen: seenOf(slot), duration: math.Float64frombits(le.Uint64(slot[32:])), claimed: math.Float64frombits(le.Uint64(slot[40:])),
		stat: media.Stat{Size: int64(le.Uint64(slot[8:])), ModNS: int64(le.Uint64(slot[16:])), ChangeNS: int64(le.Uint64(slot[24:])), Digest: le.Uint64(slot[48:])},
		kind: kind{sampleRate: int(le.Uint32(slot[56:])), channels: int(le.Uint16(slot[60:])), bits: int(slot[62]), method: profile.Methods[method]},
	}
	name := bytes.TrimRight(slot[codecAt:seenAt], "\x00")
	codec, known := codecs[string(name)]
	if !known {
		codec = string(name)
		codecs[codec] = codec
	}
	r.kind.codec = codec
	return r.duration > 0 && r.duration <= math.MaxFloat64 && r.claimed >= 0 && r.claimed <= math.MaxFloat64
}
