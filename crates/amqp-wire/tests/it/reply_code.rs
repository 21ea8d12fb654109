//! Reply codes as RabbitMQ has them.

use amqp_wire::{ReplyCode, Severity};

const RABBITMQ: &str = "\
200 REPLY_SUCCESS Success
311 CONTENT_TOO_LARGE Soft
312 NO_ROUTE Soft
313 NO_CONSUMERS Soft
320 CONNECTION_FORCED Hard
402 INVALID_PATH Hard
403 ACCESS_REFUSED Soft
404 NOT_FOUND Soft
405 RESOURCE_LOCKED Soft
406 PRECONDITION_FAILED Soft
501 FRAME_ERROR Hard
502 SYNTAX_ERROR Hard
503 COMMAND_INVALID Hard
504 CHANNEL_ERROR Hard
505 UNEXPECTED_FRAME Hard
506 RESOURCE_ERROR Hard
530 NOT_ALLOWED Hard
540 NOT_IMPLEMENTED Hard
541 INTERNAL_ERROR Hard
";

#[test]
fn codes_are_rabbitmqs() {
    let line = |code: &ReplyCode| format!("{} {} {:?}\n", code.number(), code.name(), code.severity());
    assert_eq!(ReplyCode::ALL.iter().map(line).collect::<String>(), RABBITMQ);
    for number in 0..=u16::MAX {
        let found = ReplyCode::ALL.iter().find(|code| code.number() == number);
        assert_eq!(ReplyCode::from_number(number).as_ref(), found);
    }
    assert!(ReplyCode::FrameError.is_hard() && !ReplyCode::NotFound.is_hard());
    assert_eq!(ReplyCode::ReplySuccess.severity(), Severity::Success);
}

#[test]
fn texts_fit_a_short_string() {
    assert_eq!(ReplyCode::NotFound.text("no queue 'q' in vhost '/'"), "NOT_FOUND - no queue 'q' in vhost '/'");
    let fits = "x".repeat(255 - "NOT_FOUND - ".len());
    assert_eq!(ReplyCode::NotFound.text(&fits), format!("NOT_FOUND - {fits}"));
    let cut = ReplyCode::NotFound.text(&format!("{fits}x"));
    assert!(cut.len() == 255 && cut.ends_with("x..."));
    let cut = ReplyCode::NotFound.text(&"é".repeat(200));
    assert!(cut.len() <= 255 && cut.ends_with("é..."), "whole characters");
}
