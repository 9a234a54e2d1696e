//! Sequences that random runs once found to break something: each holds now.
//!
//! Owns those sequences, as short as they could be made. What a choice does is in `properties.rs`.

use crate::agents::with_spares;
use crate::properties::{settled, settled_with, stored_at_once};

/// A spare that was to be started again is let go before it began, and a turn of another agent waits
/// for its room.
#[test]
fn properties_of_a_dropped_spare_hold() {
    let choices = [
        946_354_472,
        1_456_699_122,
        3_536_183_372,
        2_116_847_771,
        2_869_976_868,
        532_448_196,
        2_379_882_245,
        2_944_007_768,
        2_162_474_821,
        2_127_721_973,
        2_813_557_949,
        529_475_580,
        1_537_236_429,
        1_950_072_906,
        848_234_173,
        325_869_083,
        1_233_063_815,
        405_040_470,
        286_465_662,
        1_321_042_643,
        3_803_071_246,
        3_037_551_558,
        3_160_151_769,
        324_041_810,
        3_859_943_710,
        1_784_994_106,
        1_715_685_257,
        3_086_973_947,
        1_630_162_233,
        641_758_663,
        344_470_973,
        3_295_199_108,
        2_064_406_117,
    ];
    let _settled = settled_with(with_spares(), choices);
}

/// A spare is let go that a turn waits for, as it was asked whether it takes it.
#[test]
fn properties_of_a_spare_asked_and_dropped_hold() {
    let choices = [
        3_049_175_814,
        95_370_696,
        1_275_780_748,
        2_161_950_660,
        3_938_747_751,
        4_120_559_285,
        4_265_134_982,
        3_508_535_195,
        2_428_416_509,
        2_281_864_608,
        4_075_253_882,
        2_917_864_115,
        2_585_815_426,
        311_128_177,
        3_060_750_466,
        636_349_996,
        826_342_224,
    ];
    let _settled = settled_with(with_spares(), choices);
}

/// A process that takes less than the one before it that died has an older turn waiting for it to be
/// free, and a younger one behind that.
#[test]
fn properties_of_a_process_that_takes_less_hold() {
    let choices = [
        126_144_864,
        2_250_046_368,
        1_826_007_854,
        1_456_651_022,
        1_968_207_859,
        961_712_493,
        177_165_255,
        3_459_878_635,
        281_284_835,
        3_056_948_218,
        701_312_681,
        3_310_370_964,
        2_570_961_196,
        2_821_525_282,
        1_959_698_241,
        2_671_826_066,
        1_608_815_111,
        2_994_980_387,
        4_136_746_031,
        263_066_827,
    ];
    let _settled = settled(choices);
}

/// A session is closed while the process of its last turn leaves, and its name is used again.
#[test]
fn properties_of_a_name_used_again_hold() {
    let _stored = stored_at_once(&[0, 4_383_374, 189_591_470, 837_165_555, 36_430_336]);
}

/// A name is subscribed to, and while the store is read its session gets another one.
#[test]
fn properties_of_a_name_given_away_hold() {
    let choices = [
        700_323_271,
        2_034_207_967,
        2_325_515_790,
        1_072_705_543,
        1_220_376_814,
        2_629_018_786,
        2_557_258_243,
        3_877_205_097,
        2_892_546_733,
        4_155_773_578,
        452_209_968,
        2_861_471_783,
        3_845_462_048,
        3_402_919_680,
        3_123_266_506,
    ];
    let _settled = settled_with(with_spares(), choices);
}

/// A question can't be stored: who hears its turn is cut off, and hears nothing after the gap.
#[test]
fn properties_of_a_reader_cut_off_hold() {
    let choices = [
        185_996_448,
        3_735_092_750,
        2_060_208_700,
        95_350_190,
        947_820_508,
        603_313_180,
        3_602_781_148,
        6_306_350,
        528_821_466,
        3_545_258_620,
        549_593_980,
        327_726_702,
        1_772_030_980,
        1_835_904_654,
        3_334_432_224,
        931_188_802,
        1_267_981_479,
        1_531_951_626,
        2_186_462_271,
        3_873_828_511,
        2_617_620_340,
        246_537_374,
    ];
    let _settled = settled_with(with_spares(), choices);
}
