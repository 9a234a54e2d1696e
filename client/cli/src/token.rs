//! `token`: prints the word that opens HTTP.
//!
//! Owns nothing but its output. Must not know the file (`token`), nor who asks for the word.

use std::io;

use super::args::TokenArgs;
use super::exit::Exit;
use super::output;
use agentd_client::places::Environment;
use agentd_client::token;

pub(super) fn token(args: TokenArgs) -> io::Result<Exit> {
    let path = token::path(&Environment::of_process());
    let found = path.and_then(|path| match args.new {
        true => token::renew(&path),
        false => token::ensure(&path),
    });
    match found {
        Ok(token) => output::out_line(&token).map(|()| Exit::Done),
        Err(error) => {
            output::error(&error.to_string(), None);
            Ok(Exit::Configuration)
        }
    }
}
