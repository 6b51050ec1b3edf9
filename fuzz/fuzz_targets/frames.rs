//! Any bytes as what a peer sends: headers, row tables and sampled tokens must end in a value or
//! an error, and a value must be the bytes it came from.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_wire::frame::{HEADER_BYTES, Header, MAX_ROWS, decode_rows, encode_rows};
use windlass_wire::payload::{Admit, Hello, decode_sampled, encode_sampled};

fuzz_target!(|input: &[u8]| {
    // The bytes as a stream of frames, in the order in which a reader takes them.
    let mut rest = input;
    while let Ok(header) = Header::decode(rest) {
        assert_eq!(header.encode().as_slice(), &rest[..HEADER_BYTES]);
        assert!(header.rows <= MAX_ROWS && header.payload <= header.kind.payload_cap());
        let _ = header.check_hidden(576);
        let (_, after) = rest.split_at(HEADER_BYTES);
        let table = header.rows as usize * 16;
        let Some((table, after)) = after.split_at_checked(table) else {
            break;
        };
        if let Ok(rows) = decode_rows(table) {
            let mut again = Vec::new();
            encode_rows(&rows, &mut again);
            assert_eq!(again, table);
        }
        let length = usize::try_from(header.payload).unwrap_or(usize::MAX);
        let Some((payload, after)) = after.split_at_checked(length) else {
            break;
        };
        sampled(payload, header.rows as usize);
        let _ = serde_json::from_slice::<Hello>(payload);
        let _ = serde_json::from_slice::<Admit>(payload);
        rest = after;
    }
    // And each part alone, as if the parts before it were in order.
    let _ = decode_rows(input);
    if let Some((count, bytes)) = input.split_first() {
        sampled(bytes, usize::from(*count));
        // A header whose fixed parts are right, so that the others are reached at once.
        let mut made = Header::new(windlass_wire::frame::FrameType::Hidden, 1).encode();
        for (to, from) in made.iter_mut().skip(6).zip(input) {
            *to = *from;
        }
        if let Ok(header) = Header::decode(&made) {
            assert_eq!(header.encode(), made);
        }
    }
});

fn sampled(bytes: &[u8], count: usize) {
    if let Ok(tokens) = decode_sampled(bytes, count) {
        assert_eq!(tokens.len(), count);
        let mut again = Vec::new();
        encode_sampled(&tokens, &mut again);
        assert_eq!(again, bytes);
    }
}
